"""ONNX files: made by PyTorch's exporter, with the record of the detector in their metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adascale.core.errors import DetectorFileError
from adascale.core.extras import optional
from adascale.network.traceable import quiet as quiet
from adascale.network.traceable import untraceable
from adascale.storage.atomic import replacing

KIND = "adascale-export"
EXTRA = "export"
_KEY = "adascale"
_BATCH = "batch"
_LARGEST = 1_900_000_000  # bytes: protobuf ends at 2 GiB; larger networks keep their weights in a second file


def traced(module: nn.Module, example: Sequence[Tensor], batched: int = 1) -> torch.export.ExportedProgram:
    """The module as a graph whose first inputs, ``batched`` of them, may have any number of rows."""
    rows = {0: torch.export.Dim(_BATCH)}
    shapes = tuple(rows if place < batched else None for place in range(len(example)))
    with quiet(), torch.no_grad():
        module(*example)  # what a method computes once and keeps must not be made within the trace
        try:
            return torch.export.export(module, tuple(example), dynamic_shapes=shapes, strict=False)
        except Exception as error:
            raise untraceable("the decision", error) from error


def to_onnx(
    module: nn.Module, example: Sequence[Tensor], inputs: Sequence[str], outputs: Sequence[str], batched: int = 1
) -> Any:
    """The ``onnx.ModelProto`` of the module; batched: see `traced`."""
    optional("onnxscript", EXTRA)
    program = traced(module, example, batched)
    with quiet():
        made = torch.onnx.export(
            program, input_names=list(inputs), output_names=list(outputs), dynamo=True, verbose=False
        )
    assert made is not None
    return made.model_proto


def joined(front: Any, back: Any, names: Sequence[str]) -> Any:
    """One model: these outputs of ``front`` become the inputs of ``back`` that have the same names. The inputs of
    ``front``, the other inputs of ``back`` and all its outputs keep their names.
    """
    compose = optional("onnx.compose", EXTRA)
    prefix = f"{front.graph.name}/"
    front = compose.add_prefix(front, prefix, rename_inputs=False)
    back = compose.add_prefix(back, "decision/", rename_inputs=False, rename_outputs=False)
    front.ir_version = back.ir_version = max(front.ir_version, back.ir_version)
    outputs = [value.name for value in back.graph.output]
    return compose.merge_models(front, back, [(prefix + name, name) for name in names], outputs=outputs)


def with_default(model: Any, name: str, value: float) -> Any:
    """A copy of the model whose scalar input ``name`` may be left out: it then has this value."""
    onnx = optional("onnx", EXTRA)
    copy = type(model)()
    copy.CopyFrom(model)
    copy.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, dtype=np.float32), name))
    return copy


def write_onnx(path: Path, model: Any, record: Mapping[str, Any]) -> dict[str, Any]:
    """Write the model with its record, in one step; weights beyond 2 GB go to ``<path>.data`` beside it."""
    onnx = optional("onnx", EXTRA)
    written: dict[str, Any] = json.loads(_text(record))
    del model.metadata_props[:]
    with replacing(path) as temporary:
        if model.ByteSize() > _LARGEST:
            data = path.with_name(f"{path.name}.data")
            data.unlink(missing_ok=True)  # onnx appends
            onnx.save_model(model, temporary, save_as_external_data=True, location=data.name, size_threshold=1024)
            model = onnx.load(temporary, load_external_data=False)
            written["weights"] = {"file": data.name, "sha256": sha256_of(data)}
        envelope = _text({"record": written, "sha256": _checksum(model, _text(written))})
        model.metadata_props.add(key=_KEY, value=envelope)
        temporary.write_bytes(model.SerializeToString())
    return written


def read_onnx(path: Path) -> dict[str, Any]:
    """The record of an exported file, after its checksum was verified."""
    onnx = optional("onnx", EXTRA)
    try:
        model = onnx.load(path, load_external_data=False)
        texts = {entry.key: entry.value for entry in model.metadata_props}
        envelope = json.loads(texts[_KEY])
        record, expected = dict(envelope["record"]), str(envelope["sha256"])
    except KeyError as error:
        raise DetectorFileError(f"{path} is an ONNX file, but not one that adascale exported.") from error
    except Exception as error:
        raise DetectorFileError(f"{path} is damaged or not an ONNX file ({' '.join(str(error).split())}).") from error
    del model.metadata_props[:]
    weights = record.get("weights")
    if expected != _checksum(model, _text(record)):
        raise DetectorFileError(f"{path} is damaged: its content does not match its checksum. Export it again.")
    if weights is not None and weights["sha256"] != sha256_of(path.with_name(weights["file"])):
        raise DetectorFileError(f"{weights['file']}, which {path} needs, is damaged or missing. Export it again.")
    return record


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, sort_keys=True)


def _checksum(model: Any, text: str) -> str:
    digest = hashlib.sha256(text.encode())
    digest.update(model.SerializeToString(deterministic=True))
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    """The checksum of a file; empty if there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _slow(file)


def _slow(file: Any) -> str:
    digest = hashlib.sha256()
    while block := file.read(2**24):
        digest.update(block)
    return digest.hexdigest()
