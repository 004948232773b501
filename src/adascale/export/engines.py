"""What runs exported files: onnxruntime, OpenVINO, PyTorch's AOTInductor. Arrays in, arrays out."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adascale.core.errors import DetectorFileError
from adascale.core.extras import optional
from adascale.export import onnx_file
from adascale.export.formats import Format, format_of

Arrays = dict[str, npt.NDArray[Any]]
Run = Callable[[Mapping[str, npt.NDArray[Any]]], Arrays]  # inputs by name -> outputs by name


def read_record(path: Path) -> dict[str, Any]:
    """What an exported file says about itself."""
    if not path.is_file():
        raise DetectorFileError(f"There is no exported file {path}; make one with OODDetector.export.")
    return _READERS[format_of(path)](path)


def runner(path: Path, outputs: list[str], threads: int | None = None) -> Run:
    """A function that runs the file. threads: by default as many as PyTorch has."""
    return _RUNNERS[format_of(path)](path, outputs, threads or torch.get_num_threads())


def _onnxruntime(path: Path, outputs: list[str], threads: int) -> Run:
    return session_run(str(path), outputs, threads)


def session_run(model: str | bytes, outputs: list[str], threads: int | None = None) -> Run:
    """A function that runs an ONNX model, given by its path or as bytes, with onnxruntime."""
    ort = optional("onnxruntime", onnx_file.EXTRA)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads or torch.get_num_threads(), 1
    options.log_severity_level = 3  # it warns of the default of alpha, which is meant to be replaceable
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda given: dict(zip(outputs, session.run(outputs, dict(given)), strict=True))


def _openvino(path: Path, outputs: list[str], threads: int) -> Run:
    ov = optional("openvino", "openvino")
    # f32: the lower precisions that it would choose kill the process on some processors.
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    compiled = ov.Core().compile_model(str(path), "CPU", hints)

    def run(given: Mapping[str, npt.NDArray[Any]]) -> Arrays:
        found = compiled(dict(given))
        return dict(zip(outputs, (np.array(found[place]) for place in range(len(outputs))), strict=True))

    return run


def _inductor(path: Path, outputs: list[str], threads: int) -> Run:
    package = torch._inductor.aoti_load_package(str(path))

    def run(given: Mapping[str, npt.NDArray[Any]]) -> Arrays:
        found = package(*(torch.from_numpy(np.ascontiguousarray(value)) for value in given.values()))
        return {name: value.numpy() for name, value in zip(outputs, found, strict=True)}

    return run


def _read_openvino(path: Path) -> dict[str, Any]:
    ov = optional("openvino", "openvino")
    try:
        model = ov.Core().read_model(str(path))
        record: dict[str, Any] = json.loads(model.get_rt_info(["adascale", "record"]).astype(str))
        expected = record.pop("weights")["sha256"]
    except Exception as error:
        raise _damaged(path, error) from error
    weights = path.with_suffix(".bin")
    if expected != onnx_file.sha256_of(weights):
        raise DetectorFileError(f"{weights.name}, which {path} needs, is damaged or missing. Export it again.")
    return record


def _read_package(path: Path) -> dict[str, Any]:
    """From the archive: loading the package would run the code in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            if (broken := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"{broken} does not match its checksum")
            texts = (archive.read(name) for name in archive.namelist() if name.endswith("_metadata.json"))
            record: dict[str, Any] = json.loads(json.loads(next(texts))["adascale"])
    except Exception as error:
        raise _damaged(path, error) from error
    return record


def _damaged(path: Path, error: Exception) -> DetectorFileError:
    reason = " ".join(str(error).split())[:200]
    return DetectorFileError(f"{path} is damaged, or adascale did not export it ({reason}).")


_READERS: Mapping[Format, Callable[[Path], dict[str, Any]]] = {
    "onnx": onnx_file.read_onnx,
    "openvino": _read_openvino,
    "pt2": _read_package,
}
_RUNNERS: Mapping[Format, Callable[[Path, list[str], int], Run]] = {
    "onnx": _onnxruntime,
    "openvino": _openvino,
    "pt2": _inductor,
}
