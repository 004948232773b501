"""Extracted outputs on disk, in safetensors shards: long work resumes, and a new method costs no network pass."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.folders import cache_folder as cache_folder
from adascale.core.types import Outputs, View
from adascale.storage.tensors import digest


def cache_key(*parts: object) -> str:
    """One hash of everything that shapes the outputs: network, data, preprocessing."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, eq=False)
class Shard:
    """One batch: its outputs (None if no image of it could be read), the failures, and for outputs the head that they
    came through and the shape of an input.
    """

    outputs: Outputs | None
    failures: Mapping[str, str]
    head: str | None = None
    shape: tuple[int, ...] = ()


class ShardCache:
    """Shards 0, 1, 2, ... of one extraction, in the folder named by its key.

    A shard is one file with the clean outputs and the views that were extracted with them; views extracted later have
    a file each. A file of another key, or a damaged one, counts as missing. Files appear whole or not at all.
    """

    def __init__(self, folder: str | Path, key: str) -> None:
        self.folder, self.key = Path(folder) / key[:32], key

    def read(self, index: int, views: Sequence[View]) -> tuple[Shard | None, list[View]]:
        """The shard with those of the views that are there, and the views that are not."""
        found = self._file(self._path(index))
        if found is None:
            return None, list(views)
        tensors, record = found
        if not tensors:
            return Shard(None, record["failures"]), []
        known = {view: self._view(tensors, index, view) for view in views}
        present = {view: tensor for view, tensor in known.items() if tensor is not None}
        outputs = Outputs(tensors["logits"], tensors["features"], present, tensors.get("labels"))
        shard = Shard(outputs, record["failures"], record["head"], tuple(record["shape"]))
        return shard, [view for view in views if view not in present]

    def write(self, index: int, shard: Shard) -> None:
        tensors = {}
        if (outputs := shard.outputs) is not None:
            tensors = {"logits": outputs.logits, "features": outputs.features}
            tensors |= {str(view): tensor for view, tensor in outputs.views.items()}
            tensors |= {} if outputs.labels is None else {"labels": outputs.labels}
        record = {"failures": dict(shard.failures), "head": shard.head, "shape": list(shard.shape)}
        self._save(self._path(index), tensors, record)

    def write_view(self, index: int, view: View, perturbed: Tensor) -> None:
        self._save(self._path(index, view), {str(view): perturbed}, {})

    def _view(self, tensors: Mapping[str, Tensor], index: int, view: View) -> Tensor | None:
        if str(view) in tensors:
            return tensors[str(view)]
        found = self._file(self._path(index, view))
        perturbed = found[0].get(str(view)) if found else None
        return perturbed if perturbed is not None and perturbed.shape == tensors["features"].shape else None

    def _path(self, index: int, view: View | None = None) -> Path:
        return self.folder / f"{index:06d}{'' if view is None else '.' + cache_key(view)[:12]}.safetensors"

    def _save(self, path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, object]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
        text = json.dumps({"key": self.key, **record})
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        save_file(tensors, temporary, {"shard": text, "sha256": digest(tensors, text)})
        os.replace(temporary, path)

    def _file(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        except (SafetensorError, OSError):
            return None
        text = metadata.get("shard", "")
        if metadata.get("sha256") != digest(tensors, text):
            return None
        record = json.loads(text)
        return (tensors, record) if record.get("key") == self.key else None


@dataclass(frozen=True, eq=False)
class Extracted:
    """The outputs of an image set, on disk.

    rows: usable images of each shard; failures: the others, and why; shape: of an input.
    """

    cache: ShardCache
    views: Sequence[View]
    rows: Sequence[int]
    failures: Mapping[str, str]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return sum(self.rows)

    def shards(self) -> Iterator[Outputs]:
        """In order, one in memory at a time."""
        for index in filter(self.rows.__getitem__, range(len(self.rows))):
            shard, missing = self.cache.read(index, self.views)
            if shard is None or shard.outputs is None or missing:
                raise InputError(f"Shard {index} in {self.cache.folder} vanished or broke meanwhile; run it again.")
            yield shard.outputs

    def chunks(self, rows: int = 1024) -> Iterator[Outputs]:
        """The same in larger pieces, of at least so many rows but for the last."""
        waiting: list[Outputs] = []
        for outputs in self.shards():
            waiting.append(outputs)
            if sum(map(len, waiting)) >= rows:
                yield Outputs.cat(waiting)
                waiting = []
        if waiting:
            yield Outputs.cat(waiting)

    def load(self) -> Outputs:
        """All of it in memory, once."""
        if not len(self):
            raise InputError("There is nothing to load: no image of the set could be read.")
        whole: Outputs | None = None
        start = 0
        for outputs in self.shards():
            if whole is None:
                whole = _room_for(outputs, len(self))
            for mine, theirs in zip(_tensors(whole), _tensors(outputs), strict=True):
                mine[start : start + len(outputs)] = theirs
            start += len(outputs)
        assert whole is not None
        return whole


def _tensors(outputs: Outputs) -> list[Tensor]:
    labels = [] if outputs.labels is None else [outputs.labels]
    return [outputs.logits, outputs.features, *outputs.views.values(), *labels]


def _room_for(outputs: Outputs, rows: int) -> Outputs:
    def room(tensor: Tensor) -> Tensor:
        return torch.empty(rows, *tensor.shape[1:], dtype=tensor.dtype)

    views = {view: room(perturbed) for view, perturbed in outputs.views.items()}
    labels = None if outputs.labels is None else room(outputs.labels)
    return Outputs(room(outputs.logits), room(outputs.features), views, labels)
