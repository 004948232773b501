"""Exporting a fitted detector: trace, write, prove, put in place."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.detectors import Detector
from adascale.export import onnx_file
from adascale.export.engines import Format, Run, format_of, runner, session_run
from adascale.export.graph import OUTPUTS, DecisionGraph, Fitted
from adascale.export.int8 import decision_on
from adascale.export.pixels import INPUTS, check_pixels, made_pictures, pixels_graph
from adascale.export.proof import Pictures, Proof, difference_to_pillow, prove, prove_pixels, stress_rows

_INPUTS = ("images", "alpha")
# How far an engine's arithmetic moves an activation, relative to the largest. OpenVINO has scores in float32 too.
_ROUNDING: Mapping[Format, float] = {"onnx": 5e-7, "openvino": 5e-6, "pt2": 5e-7}
_LARGEST_STATE = 512 * 2**20  # bytes that a method may add to the file


def export_detector(
    fitted: Fitted,
    path: Path,
    format: str | None = None,
    images: Tensor | None = None,
    pictures: Sequence[Pictures] | None = None,
) -> Proof:
    """Write the whole decision to ``path`` and return the proof that it answers as the detector does.

    format: ``onnx``, ``openvino`` or ``pt2``; by default what the suffix says. images: inputs to prove it on, besides
    the stress rows. pictures: if given, the file takes pixels; these are batches (n, H, W, C) to prove that on, besides
    made-up ones. Nothing is left at ``path`` if the proof fails.
    """
    kind = format_of(path, format)
    check_size(fitted.method)
    check_kind(kind, fitted, pictures is not None, fitted.quantised is not None)
    rows = stress_rows(fitted.shape)
    on = "noise and stress rows"
    if images is not None and len(images):
        rows, on = torch.cat([images, rows]), f"{len(images)} given, {len(rows)} noise and stress rows"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / path.name
        record = _record(fitted, kind, pictures is not None)
        if pictures is None:
            _WRITERS[kind](made, fitted, record)
            proof = prove(runner(made, list(OUTPUTS)), fitted, rows, on, _ROUNDING[kind])
        else:
            model = _decision(fitted, INPUTS)
            proof = prove(_inner(model), fitted, rows, on, _ROUNDING[kind])
            proof = replace(proof, notes=_with_pixels(made, model, fitted, record, pictures))
        for file in sorted(made.parent.iterdir()):  # the weights of OpenVINO and of large networks are second files
            os.replace(file, path.parent / file.name)
    return proof


def check_kind(kind: Format, fitted: Fitted, pixels: bool, int8: bool) -> None:
    """Refuse what a format cannot hold."""
    for name, asked in (("pixels=True", pixels), ("int8", int8)):
        if asked and kind != "onnx":
            raise InputError(
                f"{name} is for ONNX files alone, not for {kind}; give the file a name that ends in .onnx."
            )
    if pixels:
        check_pixels(fitted.preprocess, fitted.shape)


def _with_pixels(
    path: Path, decision: Any, fitted: Fitted, record: Mapping[str, Any], pictures: Sequence[Pictures]
) -> tuple[str, ...]:
    """Write the file that takes pixels, prove it, and say how far it is from images that Pillow has resized."""
    preprocess = check_pixels(fitted.preprocess, fitted.shape)
    opset = next(found.version for found in decision.opset_import if not found.domain)
    front = pixels_graph(preprocess, opset, decision.ir_version)
    model = onnx_file.joined(front, decision, [INPUTS])
    onnx_file.write_onnx(path, onnx_file.with_default(model, "alpha", fitted.calibration.alpha), record)
    run, made = runner(path, list(OUTPUTS)), made_pictures(preprocess)
    prove_pixels(run, session_run(front.SerializeToString(), [INPUTS]), fitted, [*pictures, *made], _ROUNDING["onnx"])
    named = (pictures, "given images") if len(pictures) else (made, "pictures of noise")
    return (difference_to_pillow(run, fitted, *named),)


def _decision(fitted: Fitted, name: str = _INPUTS[0]) -> Any:
    """The decision as an ``onnx.ModelProto`` that takes normalised images under this name."""
    if fitted.quantised is not None:
        return decision_on(fitted.quantised, fitted, name)
    return onnx_file.to_onnx(DecisionGraph(fitted).eval(), _example(fitted), (name, *_INPUTS[1:]), OUTPUTS)


def _inner(model: Any) -> Run:
    """The decision behind the preprocessing, with the names of a file of its own."""
    run = session_run(model.SerializeToString(), list(OUTPUTS))
    return lambda given: run({INPUTS if name == _INPUTS[0] else name: value for name, value in given.items()})


def check_size(method: Detector) -> None:
    """Refuse a method that would make the file too large, with its size."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in method.state().values())
    if size > _LARGEST_STATE:
        raise InputError(
            f"{method.name} keeps {size / 2**20:,.0f} MB of training samples, which would all be in the file; at most "
            f"{_LARGEST_STATE // 2**20} MB are exported. Fit it on fewer samples, or take combined, mds or vim."
        )


def _record(fitted: Fitted, kind: Format, pixels: bool) -> dict[str, Any]:
    """The record of the detector, and what the file takes and gives."""
    record = dict(fitted.record)
    record["format"] = onnx_file.KIND
    record["input"] = {
        "shape": list(fitted.shape),
        "preprocess": asdict(fitted.preprocess) if fitted.preprocess else None,
    }
    record["export"] = {"format": kind, "inputs": list(_INPUTS), "outputs": list(OUTPUTS), "pixels": pixels}
    return record


def _example(fitted: Fitted) -> tuple[Tensor, Tensor]:
    images = torch.randn(2, *fitted.shape, generator=torch.Generator().manual_seed(0))
    return images, torch.tensor(fitted.calibration.alpha, dtype=torch.float32)


def _write_onnx(path: Path, fitted: Fitted, record: Mapping[str, Any]) -> None:
    model = _decision(fitted)
    onnx_file.write_onnx(path, onnx_file.with_default(model, "alpha", fitted.calibration.alpha), record)


def _write_openvino(path: Path, fitted: Fitted, record: Mapping[str, Any]) -> None:
    ov = optional("openvino", "openvino")
    model = _decision(fitted)
    made = ov.Core().read_model(model.SerializeToString())
    made.set_rt_info(json.dumps(record, sort_keys=True), ["adascale", "record"])
    ov.save_model(made, str(path), compress_to_fp16=False)


def _write_package(path: Path, fitted: Fitted, record: Mapping[str, Any]) -> None:
    program = onnx_file.traced(DecisionGraph(fitted).eval(), _example(fitted))
    options = {"aot_inductor.metadata": {"adascale": json.dumps(record, sort_keys=True)}}
    with onnx_file.quiet():
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=options)


_WRITERS = {"onnx": _write_onnx, "openvino": _write_openvino, "pt2": _write_package}
