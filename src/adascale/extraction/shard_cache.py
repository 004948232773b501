"""The outputs of one extraction on disk: a checksummed file for each batch, and one for each view or tap of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Layers, Need, Outputs, Tap, View
from adascale.storage.remote import Place, as_place
from adascale.storage.tensors import TensorFile, TensorFileError, load_tensors, save_tensors

KIND = "adascale-shard"


def cache_key(*parts: object) -> str:
    """One hash of everything that shapes the outputs: network, data, preprocessing."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf8", "surrogateescape")).hexdigest()


class ShardInfo(NamedTuple):
    """What is known about one batch without its outputs.

    rows: the number of images that could be read; failures: the others, with the reasons; head: the layer that the
    outputs come from; shape: that of an input.
    """

    rows: int
    failures: Mapping[str, str]
    head: str | None = None
    shape: tuple[int, ...] = ()


class ShardCache:
    """Shards 0, 1, 2, ... of one extraction, in the folder named by its key.

    A shard is one file with the clean outputs and the views and taps that were extracted with them; what is extracted
    later has a file of its own. A tap has a tensor for each layer, ``TAP#0``, ``TAP#1``, ... A damaged file, or one
    with another key, counts as missing. Every file is verified once, when it is first looked up; what this object has
    written itself is not verified again.
    """

    def __init__(self, folder: str | Place, key: str) -> None:
        self.folder, self.key = as_place(folder) / key[:32], key
        self._known: dict[int, ShardInfo] = {}
        self._tensors: set[tuple[int, str]] = set()

    def look_up(self, index: int, needs: Sequence[Need]) -> tuple[ShardInfo | None, list[Need]]:
        """What is on disk of a shard (None: nothing), and which of the views and taps are missing."""
        if index not in self._known:
            found = self._verified(self._path(index))
            if found is None:
                return None, list(needs)
            rows, record = len(found.tensors.get("logits", ())), found.record
            self._known[index] = ShardInfo(rows, record["failures"], record["head"], tuple(record["shape"]))
            self._tensors |= {(index, name) for name in found.tensors}
        info = self._known[index]
        return info, [need for need in needs if info.rows and not self._has(index, need)]

    def read(self, index: int, needs: Sequence[Need]) -> dict[str, Tensor]:
        """The tensors of a shard that was looked up or written: logits, features, labels if known, and what is asked
        for.
        """
        try:
            tensors = load_tensors(self._path(index), KIND, verify=False).tensors
            for need in needs:
                if _first(need) not in tensors:
                    tensors |= load_tensors(self._path(index, need), KIND, verify=False).tensors
            asked = [name for need in needs for name in names_of(need, tensors)]
            names = ("logits", "features", *asked, *(["labels"] if "labels" in tensors else []))
            return {name: tensors[name] for name in names}
        except (TensorFileError, KeyError) as error:
            raise self.gone(index) from error

    def gone(self, index: int) -> InputError:
        """What is said of a shard that was made and cannot be read."""
        return InputError(f"Shard {index} in {self.folder} was removed or damaged during the run; run again.")

    def write(self, index: int, outputs: Outputs | None, info: ShardInfo) -> None:
        """Write a shard. outputs: None if no image of the batch could be read."""
        tensors = {}
        if outputs is not None:
            tensors = {"logits": outputs.logits, "features": outputs.features}
            tensors |= _named(outputs.views, outputs.taps)
            tensors |= {} if outputs.labels is None else {"labels": outputs.labels}
        record = {"key": self.key, "failures": info.failures, "head": info.head, "shape": info.shape}
        save_tensors(self._path(index), tensors, record, KIND)
        self._known[index] = info
        self._tensors |= {(index, name) for name in tensors}

    def write_needs(self, index: int, views: Mapping[View, Tensor], taps: Mapping[Tap, Layers]) -> None:
        """Write what was extracted later, each view and tap to a file of its own."""
        parts: dict[Need, dict[str, Tensor]] = {view: _named({view: found}, {}) for view, found in views.items()}
        parts |= {tap: _named({}, {tap: found}) for tap, found in taps.items()}
        for need, tensors in parts.items():
            save_tensors(self._path(index, need), tensors, {"key": self.key}, KIND)
            self._tensors |= {(index, name) for name in tensors}

    def _has(self, index: int, need: Need) -> bool:
        """Whether the shard has the view or tap, in its own file or in that of the need."""
        if (index, _first(need)) not in self._tensors:
            found = self._verified(self._path(index, need))
            if found and len(found.tensors.get(_first(need), ())) == self._known[index].rows:
                self._tensors.add((index, _first(need)))
        return (index, _first(need)) in self._tensors

    def _path(self, index: int, need: Need | None = None) -> Place:
        return self.folder / f"{index:06d}{'' if need is None else '.' + cache_key(need)[:12]}.safetensors"

    def _verified(self, path: Place) -> TensorFile | None:
        try:
            found = load_tensors(path, KIND)
        except TensorFileError:
            return None
        return found if found.record.get("key") == self.key else None


def _first(need: Need) -> str:
    """The name of the tensor of a view, or of the first of a tap."""
    return f"{need}#0" if isinstance(need, Tap) else str(need)


def names_of(need: Need, tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of the tensors of a view or tap among these; of a tap in the order of its layers."""
    if isinstance(need, View):
        return [str(need)]
    return [name for i in range(len(tensors)) if (name := f"{need}#{i}") in tensors]


def _named(views: Mapping[View, Tensor], taps: Mapping[Tap, Layers]) -> dict[str, Tensor]:
    layers = {f"{tap}#{i}": layer for tap, found in taps.items() for i, layer in enumerate(found)}
    return {**{str(view): tensor for view, tensor in views.items()}, **layers}
