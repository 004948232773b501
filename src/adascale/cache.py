"""Extracted outputs on disk, one safetensors shard a batch, so that long work resumes where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from adascale.store import digest
from adascale.types import Outputs, View


def cache_key(*parts: object) -> str:
    """One hash of everything that shapes the outputs: network, data, preprocessing, views."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf8", "surrogateescape")).hexdigest()


class ShardCache:
    """Shards 0, 1, 2, ... of one extraction. A shard of another key, or a damaged one, counts as missing."""

    def __init__(self, folder: str | Path, key: str, views: Sequence[View] = ()) -> None:
        self.folder, self.key, self.views = Path(folder), key, tuple(views)

    def read(self) -> Iterator[tuple[Outputs | None, dict[str, str]]]:
        """The intact shards from the first on: outputs (None if no image of it could be read) and failures."""
        index = 0
        while (shard := self._read_one(index)) is not None:
            yield shard
            index += 1

    def write(self, index: int, outputs: Outputs | None, failures: Mapping[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {} if outputs is None else self._tensors(outputs)
        text = json.dumps({"key": self.key, "failures": dict(failures)})
        temporary = self._path(index).with_suffix(".tmp")
        save_file(tensors, temporary, {"shard": text, "sha256": digest(tensors, text)})
        os.replace(temporary, self._path(index))

    def _path(self, index: int) -> Path:
        return self.folder / f"{index:06d}.safetensors"

    def _read_one(self, index: int) -> tuple[Outputs | None, dict[str, str]] | None:
        try:
            with safe_open(self._path(index), framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        except (SafetensorError, OSError):
            return None
        text = metadata.get("shard", "{}")
        record = json.loads(text)
        if metadata.get("sha256") != digest(tensors, text) or record.get("key") != self.key:
            return None
        outputs = None
        if tensors:
            views = {view: tensors[str(view)] for view in self.views}
            outputs = Outputs(tensors["logits"], tensors["features"], views, tensors.get("labels"))
        return outputs, record["failures"]

    def _tensors(self, outputs: Outputs) -> dict[str, Tensor]:
        tensors = {"logits": outputs.logits, "features": outputs.features}
        tensors |= {str(view): outputs.views[view] for view in self.views}
        if outputs.labels is not None:
            tensors["labels"] = outputs.labels
        return {name: tensor.contiguous() for name, tensor in tensors.items()}
