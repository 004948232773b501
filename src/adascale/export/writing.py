"""Exporting a fitted detector: trace, write, prove, put in place."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.detectors import Detector
from adascale.export import onnx_file
from adascale.export.engines import Format, format_of, runner
from adascale.export.graph import OUTPUTS, DecisionGraph, Fitted
from adascale.export.proof import Proof, prove, stress_rows

_INPUTS = ("images", "alpha")
# How far an engine's arithmetic moves an activation, relative to the largest. OpenVINO computes the scores in float32 too.
_ROUNDING: Mapping[Format, float] = {"onnx": 5e-7, "openvino": 5e-6, "pt2": 5e-7}
_LARGEST_STATE = 512 * 2**20  # bytes that a method may add to the file


def export_detector(fitted: Fitted, path: Path, format: str | None = None, images: Tensor | None = None) -> Proof:
    """Write the whole decision to ``path`` and return the proof that it answers as the detector does.

    format: ``onnx``, ``openvino`` or ``pt2``; by default what the suffix says. images: inputs to prove it on, besides
    the stress rows. Nothing is left at ``path`` if the proof fails.
    """
    kind = format_of(path, format)
    check_size(fitted.method)
    graph = DecisionGraph(fitted).eval()
    rows = stress_rows(fitted.shape)
    on = "noise and stress rows"
    if images is not None and len(images):
        rows, on = torch.cat([images, rows]), f"{len(images)} given, {len(rows)} noise and stress rows"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / path.name
        _WRITERS[kind](made, graph, fitted, _record(fitted, kind))
        proof = prove(runner(made, list(OUTPUTS)), fitted, rows, on, _ROUNDING[kind])
        for file in sorted(made.parent.iterdir()):  # the weights of OpenVINO and of large networks are second files
            os.replace(file, path.parent / file.name)
    return proof


def check_size(method: Detector) -> None:
    """Refuse a method that would make the file too large, with its size."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in method.state().values())
    if size > _LARGEST_STATE:
        raise InputError(
            f"{method.name} keeps {size / 2**20:,.0f} MB of training samples, which would all be in the file; at most "
            f"{_LARGEST_STATE // 2**20} MB are exported. Fit it on fewer samples, or take combined, mds or vim."
        )


def _record(fitted: Fitted, kind: Format) -> dict[str, Any]:
    """The record of the detector, and what the file takes and gives."""
    record = dict(fitted.record)
    record["format"] = onnx_file.KIND
    record["input"] = {
        "shape": list(fitted.shape),
        "preprocess": asdict(fitted.preprocess) if fitted.preprocess else None,
    }
    record["export"] = {"format": kind, "inputs": list(_INPUTS), "outputs": list(OUTPUTS), "pixels": False}
    return record


def _example(fitted: Fitted) -> tuple[Tensor, Tensor]:
    images = torch.randn(2, *fitted.shape, generator=torch.Generator().manual_seed(0))
    return images, torch.tensor(fitted.calibration.alpha, dtype=torch.float32)


def _write_onnx(path: Path, graph: nn.Module, fitted: Fitted, record: Mapping[str, Any]) -> None:
    model = onnx_file.to_onnx(graph, _example(fitted), _INPUTS, OUTPUTS)
    onnx_file.write_onnx(path, onnx_file.with_default(model, "alpha", fitted.calibration.alpha), record)


def _write_openvino(path: Path, graph: nn.Module, fitted: Fitted, record: Mapping[str, Any]) -> None:
    ov = optional("openvino", "openvino")
    model = onnx_file.to_onnx(graph, _example(fitted), _INPUTS, OUTPUTS)
    made = ov.Core().read_model(model.SerializeToString())
    made.set_rt_info(json.dumps(record, sort_keys=True), ["adascale", "record"])
    ov.save_model(made, str(path), compress_to_fp16=False)


def _write_package(path: Path, graph: nn.Module, fitted: Fitted, record: Mapping[str, Any]) -> None:
    program = onnx_file.traced(graph, _example(fitted))
    options = {"aot_inductor.metadata": {"adascale": json.dumps(record, sort_keys=True)}}
    with onnx_file.quiet():
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=options)


_WRITERS = {"onnx": _write_onnx, "openvino": _write_openvino, "pt2": _write_package}
