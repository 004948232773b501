"""Files with many images in each, and data sets: their images by name."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from adascale.images.hf_datasets import dataset_entries
from adascale.images.image_set import ImageSet
from adascale.images.parquets import parquet_entries
from adascale.images.stored import Entries
from adascale.images.tars import tar_entries
from adascale.storage.remote import Place

_AT_ONCE = 8


class ShardFile(NamedTuple):
    """A .tar, a .parquet, or the text of a data set. name: as the user would give it; key: the same in its source."""

    place: Place | str
    name: str
    key: str


def read_shard_files(files: Sequence[ShardFile], max_pixels: int) -> ImageSet:
    """The images of all these files, in order: ``FILE.tar/MEMBER`` and ``FILE.parquet[ROW]``."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        parts = list(pool.map(partial(shard_entries, max_pixels=max_pixels), files))
    return image_set(files, parts, max_pixels)


def image_set(files: Sequence[ShardFile], parts: Sequence[Entries], max_pixels: int) -> ImageSet:
    """The images of files whose entries are known."""
    pairs = list(zip(files, parts, strict=True))
    labels = [label for part in parts for label in part.labels or ()]
    names = [f"{file.name}{inner}" for file, part in pairs for inner in part.names]
    return ImageSet(
        names,
        items=[item for part in parts for item in part.items],
        labels=labels if len(labels) == len(names) else None,
        keys=[f"{file.key}{inner}" for file, part in pairs for inner in part.names],
        max_pixels=max_pixels,
    )


def shard_entries(file: ShardFile, max_pixels: int, group: int | None = None) -> Entries:
    """The images of one file; group: of one row group of a Parquet file."""
    if isinstance(file.place, str):
        return dataset_entries(file.place)
    if file.place.suffix.lower() == ".parquet":
        return parquet_entries(file.place, max_pixels, group)
    return tar_entries(file.place)
