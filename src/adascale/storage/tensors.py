"""Detector files: safetensors with JSON metadata. Nothing is ever unpickled; damage is detected by a checksum."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from adascale.core.errors import DetectorFileError

FORMAT = "adascale-detector"
FORMAT_VERSION = 1
_KEY = "adascale"


def write(path: str | Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Save atomically: the file is there whole or not at all."""
    path = Path(path)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    record = {"format": FORMAT, "format_version": FORMAT_VERSION, **record}
    # One entry only: safetensors writes several in no fixed order, and equal detectors should be equal files.
    envelope = json.dumps({"record": record, "sha256": digest(tensors, _text(record))}, allow_nan=False, sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(tensors, temporary, metadata={_KEY: envelope})
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the record of a detector file, or a refusal with the reason."""
    path = Path(path)
    if not path.is_file():
        raise DetectorFileError(f"There is no detector file {path}; make one with OODDetector.save or adascale fit.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise DetectorFileError(f"{path} is damaged or not a safetensors file ({error}); save it again.") from error
    if _KEY not in metadata:
        raise DetectorFileError(f"{path} is a safetensors file, but not a detector saved by adascale.")
    try:
        envelope = json.loads(metadata[_KEY])
        record: dict[str, Any] = envelope["record"]
        intact = envelope["sha256"] == digest(tensors, _text(record))
    except (ValueError, TypeError, KeyError):
        intact, record = False, {}
    if not intact:
        raise DetectorFileError(f"{path} is damaged: its content does not match its checksum; save it again.")
    if record.get("format") != FORMAT or record.get("format_version") != FORMAT_VERSION:
        raise DetectorFileError(
            f"{path} has format {record.get('format')} {record.get('format_version')}; "
            f"this version reads {FORMAT} {FORMAT_VERSION}. Fit and save it again."
        )
    return tensors, record


def is_detector(path: Path) -> bool:
    """Whether the file says that it is a detector; network weights beside it do not."""
    try:
        with safe_open(path, framework="pt") as file:
            return _KEY in (file.metadata() or {})
    except (SafetensorError, OSError):
        return True  # damaged: let reading it say so


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, sort_keys=True)


def digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """The checksum of a file's content: its text and every tensor."""
    checksum = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        checksum.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        checksum.update(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return checksum.hexdigest()


def umask() -> int:
    """The permissions that new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
