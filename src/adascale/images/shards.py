"""The shards of a source: pieces of a data set that can be read alone, on any machine that reaches the source.

    shards = list_shards("s3://bucket/train", size=1000)
    for shard in shards:                   # cheap: nothing is read yet
        with shard.opened() as images:     # an `ImageSet`, with the names that `find_images` gives
            ...

A shard is a tar, a row group of a Parquet file, or ``size`` neighbouring images of anything else (a folder, a list, an
.npz, a data set). Listing reads names only (and the footers of Parquet files). The shards of a source are in the order
of `find_images`, every image is in exactly one, and together they are all images of `find_images` of that source.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import overload

from adascale.core.errors import InputError
from adascale.images.image_set import ImageSet
from adascale.images.limits import MAX_PIXELS, check_max_pixels
from adascale.images.parquets import group_rows
from adascale.images.places import Given, as_texts
from adascale.images.shard_files import ShardFile, image_set, shard_entries
from adascale.images.sources import find_images, shard_files
from adascale.images.tars import tar_entries
from adascale.storage.remote import Place, Url, local_copy, version_of

SHARD_SIZE = 1000


@dataclass(frozen=True)
class Shard:
    """A piece of a source. It can be pickled; one of single images then takes their names along, not their content.

    name: made of what is in it, so it stays the same as long as the source does; distinct among the shards of a source,
    and usable as a file name. rows: how many images it has; None for a tar, which has to be opened for that.
    """

    name: str
    rows: int | None
    max_pixels: int = MAX_PIXELS
    file: ShardFile | None = None
    group: int | None = None
    images: ImageSet | None = None

    @contextmanager
    def opened(self) -> Iterator[ImageSet]:
        """Its images, as long as the context lasts. A remote tar is downloaded once and removed at the end."""
        if self.images is not None:
            yield self.images
            return
        assert self.file is not None
        if self.group is None and isinstance(self.file.place, Url):
            version = version_of(self.file.place)
            with local_copy(self.file.place) as copy:
                yield image_set([self.file], [tar_entries(copy, version)], self.max_pixels)
        else:
            entries = shard_entries(self.file, self.max_pixels, self.group)
            yield image_set([self.file], [entries], self.max_pixels)

    def fingerprint(self) -> str:
        """A digest that changes with the content, from sizes, times and versions; nothing is read."""
        if self.images is not None:
            return self.images.fingerprint()
        assert self.file is not None
        assert not isinstance(self.file.place, str)
        return _digest(version_of(self.file.place), self.group, self.max_pixels)


class ImageShards(Sequence[Shard]):
    """The shards of a source. Those of single images are made when they are asked for."""

    def __init__(self, parts: Sequence[tuple[Shard | ImageSet, range]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> Shard: ...
    @overload
    def __getitem__(self, index: slice) -> ImageShards: ...
    def __getitem__(self, index: int | slice) -> Shard | ImageShards:
        if isinstance(index, slice):
            return ImageShards(self._parts[index])
        part, span = self._parts[index]
        if isinstance(part, Shard):
            return part
        images = part.subset(span)
        name = f"images-{span.start:09d}-{span.stop:09d}-{_digest(*images.names)}"
        return Shard(name, len(span), images.max_pixels, images=images)


def list_shards(
    source: Given | Sequence[Given],
    root: str | Place | None = None,
    size: int = SHARD_SIZE,
    max_pixels: int = MAX_PIXELS,
) -> ImageShards:
    """The shards of what `find_images` takes. size: images in a shard, where the source has no shards of its own.

    Where a source is given twice, its shards come twice in `find_images` and once here.
    """
    if size < 1:
        raise InputError(f"size={size}; a shard has at least 1 image.")
    places, max_pixels = list(dict.fromkeys(as_texts(source))), check_max_pixels(max_pixels)
    files = {place: [] if place == "-" else shard_files(place) for place in places}
    if not any(files.values()):
        return ImageShards(_ranges(find_images(places, root, max_pixels), size))
    parts: list[tuple[Shard | ImageSet, range]] = []
    for place in places:
        own = [file for file in files[place] if not isinstance(file.place, str)]
        if own:
            with ThreadPoolExecutor(8) as pool:
                parts += [
                    (shard, range(0)) for some in pool.map(_of_file, own, [max_pixels] * len(own)) for shard in some
                ]
        else:
            parts += _ranges(find_images(place, root, max_pixels), size)
    return ImageShards(parts)


def _ranges(images: ImageSet, size: int) -> list[tuple[Shard | ImageSet, range]]:
    return [(images, range(i, min(i + size, len(images)))) for i in range(0, len(images), size)]


def _of_file(file: ShardFile, max_pixels: int) -> list[Shard]:
    assert not isinstance(file.place, str)
    stem = re.sub(r"[^\w.-]+", "_", file.key)[-80:]
    if file.place.suffix.lower() != ".parquet":
        return [Shard(f"{stem}-{_digest(file.name)}", None, max_pixels, file)]
    return [
        Shard(f"{stem}-{group:05d}-{_digest(file.name)}", rows, max_pixels, file, group)
        for group, rows in enumerate(group_rows(file.place))
    ]


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf8", "surrogateescape")).hexdigest()[:12]
