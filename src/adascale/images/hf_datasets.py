"""Data sets of the Hugging Face library ``datasets``: ``hf-dataset:NAME_OR_DIR#SPLIT``.

A folder is one that ``save_to_disk`` wrote, or one that ``load_dataset`` takes. No code of a data set is ever run.
Images are decoded here, not by that library, so that limits and preprocessing are as for files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.images.places import DATASET as PREFIX
from adascale.images.stored import Entries, Stored

_SAVED = ("state.json", "dataset_dict.json")
_LABELS = ("label", "labels", "fine_label", "class", "target")


@dataclass(frozen=True, slots=True)
class DatasetRow(Stored):
    """The image in one row. version: the fingerprint of the data set."""

    data: Any
    column: str
    row: int
    version: str

    def bytes_needed(self) -> int:
        return 0  # known only when it was read; the table itself is mapped from disk

    def read(self) -> bytes:
        value = self.data[self.row][self.column]
        if value["bytes"] is not None:
            return bytes(value["bytes"])
        if value["path"] is None:
            raise ValueError("the row has no image")
        return Path(value["path"]).read_bytes()

    def identity(self) -> str:
        return f"{self.version} {self.row}"


def dataset_entries(given: str) -> Entries:
    """The images of a split, named ``[ROW]``."""
    data = _loaded(given)
    datasets = optional("datasets", "datasets")
    images = [name for name, kind in data.features.items() if isinstance(kind, datasets.Image)]
    if not images:
        raise InputError(f"{given} has the columns {', '.join(data.features)}; none of them is of the type Image.")
    if not len(data):
        raise InputError(f"{given} holds no image; it has no rows.")
    version, column = str(data._fingerprint), images[0]
    label = next((name for name in _LABELS if _is_whole(data.features.get(name))), None)
    labels = None if label is None else list(data[label])
    kept = data.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    items = [DatasetRow(kept, column, row, version) for row in range(len(data))]
    return Entries([f"[{row}]" for row in range(len(data))], items, labels)


def _is_whole(kind: Any) -> bool:
    return "int" in str(getattr(kind, "dtype", ""))


def _loaded(given: str) -> Any:
    """The split that a text names."""
    place, hash_sign, split = given.removeprefix(PREFIX).rpartition("#")
    if not hash_sign:
        place, split = split, ""
    datasets = optional("datasets", "datasets")
    try:
        if any(os.path.isfile(os.path.join(place, name)) for name in _SAVED):
            found = datasets.load_from_disk(place)
        else:
            return datasets.load_dataset(place, split=split) if split else _only(datasets.load_dataset(place))
    except Exception as error:  # that library raises exceptions of many kinds
        reason = " ".join(str(error).split()).rstrip(".")[:200]
        raise InputError(f"{given} cannot be loaded: {reason}; give {PREFIX}NAME_OR_DIR#SPLIT.") from error
    return _split(given, found, split)


def _only(found: Any) -> Any:
    """The only split, where none was named."""
    if len(found) > 1:
        raise InputError(f"give one of the splits {', '.join(found)}")
    return next(iter(found.values()))


def _split(given: str, found: Any, split: str) -> Any:
    if not hasattr(found, "keys"):
        if split:
            raise InputError(f"{given}: the data set has no splits; leave out #{split}.")
        return found
    if split not in found:
        raise InputError(
            f"{given}: give one of the splits {', '.join(found)}, as in {PREFIX}NAME_OR_DIR#{next(iter(found))}."
        )
    return found[split]
