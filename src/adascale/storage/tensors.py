"""One file for tensors and a JSON record: safetensors with a checksum. Nothing is ever unpickled.

Detector files, activation shards and training checkpoints are such files; their ``kind`` tells them apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from adascale.core.errors import InputError
from adascale.storage.atomic import replacing
from adascale.storage.remote import Place, local_copy

FORMAT_VERSION = 1
_KEY = "adascale"


class TensorFileError(InputError):
    """A tensor file is damaged, or is not one of the expected kind."""


class ForeignFileError(TensorFileError):
    """A file is intact as far as can be seen, but of another kind."""


class TensorFile(NamedTuple):
    """What a file holds, and the checksum of it."""

    tensors: dict[str, Tensor]
    record: dict[str, Any]
    sha256: str


def save_tensors(path: Place, tensors: Mapping[str, Tensor], record: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Write the file in one step. Returns the record as `load_tensors` would."""
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = _text({"format": kind, "format_version": FORMAT_VERSION, **record})
    written: dict[str, Any] = json.loads(text)
    # One entry only: safetensors writes several in no fixed order, and equal content should give equal files.
    envelope = _text({"record": written, "sha256": checksum(kept, text)})
    with replacing(path) as temporary:
        try:
            save_file(kept, temporary, metadata={_KEY: envelope})
        except SafetensorError as error:  # what the system said, in other words
            raise OSError(str(error)) from error
    return written


def load_tensors(path: Place, kind: str, verify: bool = True) -> TensorFile:
    """The content of a file of this kind. ``verify=False`` skips the checksum, for files that were verified before."""
    try:
        with local_copy(path) as copy, safe_open(copy, framework="pt") as file:
            record, expected = _envelope(path, file.metadata() or {}, kind)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise TensorFileError(f"{path} is damaged or not a safetensors file ({error}).") from error
    if verify and expected != checksum(tensors, _text(record)):
        raise TensorFileError(f"{path} is damaged: its content does not match its checksum.")
    return TensorFile(tensors, record, expected)


def load_record(path: Place, kind: str) -> dict[str, Any]:
    """The record alone, without a look at the tensors; empty if this is not a file of the kind."""
    try:
        with local_copy(path) as copy, safe_open(copy, framework="pt") as file:
            return _envelope(path, file.metadata() or {}, kind)[0]
    except (SafetensorError, OSError, TensorFileError):
        return {}


def _envelope(path: Place, metadata: Mapping[str, str], kind: str) -> tuple[dict[str, Any], str]:
    """The record and the checksum, if the file says that it is of this kind."""
    try:
        envelope = json.loads(metadata.get(_KEY, "{}")) or {"record": {}, "sha256": ""}
        record, sha256 = dict(envelope["record"]), str(envelope["sha256"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TensorFileError(f"{path} is damaged: its record cannot be read.") from error
    if record.get("format") != kind:
        raise ForeignFileError(f"{path} is a safetensors file, but not of the format {kind}.")
    if record.get("format_version") != FORMAT_VERSION:
        version = f"{record.get('format_version')}; this version reads {FORMAT_VERSION}"
        raise TensorFileError(f"{path} has the format {kind} {version}.")
    return record, sha256


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, sort_keys=True)


def checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """The SHA-256 of a file's content: its text and every tensor."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        if tensors[name].numel():  # torch refuses to view nothing as bytes
            digest.update(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
