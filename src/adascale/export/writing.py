"""Exporting a fitted detector: trace, write, prove, put in place."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.detectors import Detector
from adascale.export import onnx_file
from adascale.export.early import CLEAN_OUTPUTS, CleanGraph, Early, branching, check_early, clean_path
from adascale.export.engines import Run, runner, session_run
from adascale.export.formats import Format, format_of
from adascale.export.graph import INPUTS, OUTPUTS, DecisionGraph, Fitted, example
from adascale.export.int8 import decision_on
from adascale.export.pixels import INPUT, check_pixels, made_pictures, pixels_graph
from adascale.export.proof import (
    Pictures,
    Proof,
    difference_to_pillow,
    prove,
    prove_decisions,
    prove_pixels,
    stress_rows,
)

# How far an engine's arithmetic moves an activation, relative to the largest. OpenVINO computes scores in float32 too.
_ROUNDING: Mapping[Format, float] = {"onnx": 5e-7, "openvino": 2e-5, "pt2": 5e-7}
_LARGEST_STATE = 512 * 2**20  # bytes that a method may add to the file


def export_detector(
    fitted: Fitted,
    path: Path,
    format: str | None = None,
    images: Tensor | None = None,
    early: Early | None = None,
    pictures: Sequence[Pictures] | None = None,
) -> Proof:
    """Write the whole decision to ``path`` and return the proof that it answers as the detector does.

    format: ``onnx``, ``openvino`` or ``pt2``; by default what the suffix says. images: inputs to prove it on, besides
    the stress rows. early: see `adascale.export.early`. pictures: if given, the file takes pixels; these are batches
    (n, H, W, C) to prove that on, besides made-up ones. Nothing is left at ``path`` if the proof fails.
    """
    kind = format_of(path, format)
    check_kind(kind, fitted, early, pictures is not None, fitted.quantised is not None)
    if early is not None:
        if early not in get_args(Early) or kind != "onnx":
            raise InputError(f"early={early!r} for {path.name}; it is {' or '.join(get_args(Early))}, for .onnx files.")
        check_early(fitted)
    check_size(fitted.method)
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file.")
    rows, on = stress_rows(fitted.shape), "noise and stress rows"
    if images is not None and len(images):
        rows, on = torch.cat([images.float(), rows]), f"{len(images)} given, {len(rows)} noise and stress rows"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / path.name
        proof = Proof(on)
        if pictures is not None:
            proof = _with_pixels(made, fitted, rows, on, pictures)
        elif early != "if":
            _WRITERS[kind](made, fitted, record_of(fitted, kind, OUTPUTS))
            proof = prove(runner(made, list(OUTPUTS)), fitted, rows, on, _rounding(fitted, kind))
        if early is not None:
            decider = clean_path(made) if early == "pair" else made
            _write_early(decider, fitted, early)
            run = runner(decider, list(CLEAN_OUTPUTS))
            proof = prove_decisions(run, fitted, rows, proof, _rounding(fitted, kind), only_early=early == "pair")
        for file in sorted(made.parent.iterdir()):  # the weights of OpenVINO and of large networks are second files
            os.replace(file, path.parent / file.name)
    return proof


def _rounding(fitted: Fitted, kind: Format) -> float:
    """How far the engine moves an activation.

    A gradient near 0 may be rounded to another sign or rank, so that some of the chosen pixels are others; a change of
    the memory layout does the same in PyTorch.
    """
    return 1e-3 if any(view.needs_gradient for view in fitted.method.views) else _ROUNDING[kind]


def check_kind(kind: Format, fitted: Fitted, early: Early | None, pixels: bool, int8: bool) -> None:
    """Refuse what a format cannot hold, and what does not go together."""
    for name, asked in (("pixels=True", pixels), ("int8", int8)):
        if asked and kind != "onnx":
            raise InputError(
                f"{name} is for ONNX files alone, not for {kind}; give the file a name that ends in .onnx."
            )
        if asked and early is not None:
            raise InputError(f"{name} came with early={early!r}; a file has the one or the other.")
    if pixels:
        check_pixels(fitted.preprocess, fitted.shape)


def _with_pixels(path: Path, fitted: Fitted, rows: Tensor, on: str, pictures: Sequence[Pictures]) -> Proof:
    """Write the file that takes pixels, prove both of its parts, and say how far it is from the resizing of Pillow."""
    preprocess = check_pixels(fitted.preprocess, fitted.shape)
    decision = _decision(fitted, INPUT)
    rounding = _rounding(fitted, "onnx")
    proof = prove(_inner(decision), fitted, rows, on, rounding)
    opset = next(found.version for found in decision.opset_import if not found.domain)
    front = pixels_graph(preprocess, opset, decision.ir_version)
    model = onnx_file.with_default(onnx_file.joined(front, decision, [INPUT]), "alpha", fitted.calibration.alpha)
    onnx_file.write_onnx(path, model, record_of(fitted, "onnx", OUTPUTS, pixels=True))
    run, made = runner(path, list(OUTPUTS)), made_pictures(preprocess)
    prove_pixels(run, session_run(front.SerializeToString(), [INPUT]), fitted, [*pictures, *made], rounding)
    named = (pictures, "given images") if len(pictures) else (made, "pictures of noise")
    return replace(proof, notes=(difference_to_pillow(run, fitted, *named),))


def _decision(fitted: Fitted, name: str = INPUTS[0]) -> Any:
    """The decision as an ``onnx.ModelProto`` that takes normalised images under this name."""
    if fitted.quantised is not None:
        return decision_on(fitted.quantised, fitted, name)
    return onnx_file.to_onnx(DecisionGraph(fitted).eval(), example(fitted), (name, *INPUTS[1:]), OUTPUTS)


def _inner(model: Any) -> Run:
    """The decision behind the preprocessing, with the names of a file of its own."""
    run = session_run(model.SerializeToString(), list(OUTPUTS))
    return lambda given: run({INPUT if name == INPUTS[0] else name: value for name, value in given.items()})


def check_size(method: Detector) -> None:
    """Refuse a method that would make the file too large, with its size."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in method.state().values())
    if size > _LARGEST_STATE:
        raise InputError(
            f"{method.name} keeps {size / 2**20:,.0f} MB of training samples, which would all be in the file; at most "
            f"{_LARGEST_STATE // 2**20} MB are exported. Fit it on fewer samples, or take combined, mds or vim."
        )


def record_of(
    fitted: Fitted, kind: Format, outputs: Sequence[str], early: Early | None = None, pixels: bool = False
) -> dict[str, Any]:
    """The record of the detector, and what the file takes and gives."""
    record = dict(fitted.record)
    record["format"] = onnx_file.KIND
    record["input"] = {
        "shape": list(fitted.shape),
        "preprocess": asdict(fitted.preprocess) if fitted.preprocess else None,
    }
    record["export"] = {
        "format": kind,
        "inputs": list(INPUTS),
        "outputs": list(outputs),
        "pixels": pixels,
        "early": early,
    }
    return record


def _write_onnx(path: Path, fitted: Fitted, record: Mapping[str, Any]) -> None:
    model = _decision(fitted)
    onnx_file.write_onnx(path, onnx_file.with_default(model, "alpha", fitted.calibration.alpha), record)


def _write_early(path: Path, fitted: Fitted, early: Early) -> None:
    if early == "if":
        model = branching(fitted)
    else:
        model = onnx_file.to_onnx(CleanGraph(fitted).eval(), example(fitted), INPUTS, CLEAN_OUTPUTS)
    record = record_of(fitted, "onnx", CLEAN_OUTPUTS, early)
    onnx_file.write_onnx(path, onnx_file.with_default(model, "alpha", fitted.calibration.alpha), record)


def _write_openvino(path: Path, fitted: Fitted, record: Mapping[str, Any]) -> None:
    ov = optional("openvino", "openvino")
    model = _decision(fitted)
    made = ov.Core().read_model(model.SerializeToString())
    ov.save_model(made, str(path), compress_to_fp16=False)
    checked = {**record, "weights": {"sha256": onnx_file.sha256_of(path.with_suffix(".bin"))}}
    made.set_rt_info(json.dumps(checked, sort_keys=True), ["adascale", "record"])
    ov.save_model(made, str(path), compress_to_fp16=False)  # once more: the record is in the .xml alone


def _write_package(path: Path, fitted: Fitted, record: Mapping[str, Any]) -> None:
    program = onnx_file.traced(DecisionGraph(fitted).eval(), example(fitted))
    options = {"aot_inductor.metadata": {"adascale": json.dumps(record, sort_keys=True)}}
    with onnx_file.quiet():
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=options)


_WRITERS = {"onnx": _write_onnx, "openvino": _write_openvino, "pt2": _write_package}
