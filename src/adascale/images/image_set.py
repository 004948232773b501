"""A set of named images in a fixed order, wherever each of them is."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from adascale.images.limits import MAX_PIXELS
from adascale.images.pixels import Item, opened
from adascale.images.stored import RemoteFile, Stored

_ASKED_AT_ONCE = 16  # stores answer slowly, but many questions at a time


class Change(Protocol):
    """A change of every image after it is opened. Its ``repr`` must show all that shapes the result."""

    def __call__(self, image: Image.Image, name: str) -> Image.Image: ...


@dataclass(frozen=True)
class ImageSet:
    """Named images in a fixed order: files, the rows of an array, or ``items`` of several kinds.

    names: as the user gave the paths. keys: the same within their source, by default the names; they stay the same
    however the path of the source is spelled, so noise is drawn by them and activations are kept under them. labels:
    class labels, where they are known. max_pixels: files with more pixels cannot be read.
    """

    names: Sequence[str]
    paths: Sequence[Path] = ()
    array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None = None
    labels: Sequence[int] | None = None
    change: Change | None = None
    keys: Sequence[str] = ()
    items: Sequence[Item] = ()
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", self.keys or self.names)

    def __len__(self) -> int:
        return len(self.names)

    def open(self, index: int, least: int | None = None) -> Image.Image:
        """One image. least: the decoder may save time by a smaller image, with sides of at least this length."""
        with self.opened(index, least) as image:
            return image

    @contextmanager
    def opened(self, index: int, least: int | None = None) -> Iterator[Image.Image]:
        """The same as a context; while it lasts, other threads decode only what the memory has room for."""
        with opened(self.item(index), least, self.max_pixels) as image:
            yield image if self.change is None else self.change(image, self.keys[index])

    def item(self, index: int) -> Item:
        """What holds one image: a path, bytes, a Pillow image or an array."""
        if self.array is not None:
            row: Item = self.array[index]
            return row
        return self.paths[index] if self.paths else self.items[index]

    def subset(self, indices: Sequence[int]) -> ImageSet:
        """These images, in this order."""
        return replace(
            self,
            names=[self.names[i] for i in indices],
            paths=[self.paths[i] for i in indices] if self.paths else (),
            array=None if self.array is None else self.array[list(indices)],
            labels=None if self.labels is None else [self.labels[i] for i in indices],
            keys=[self.keys[i] for i in indices],
            items=[self.items[i] for i in indices] if self.items else (),
        )

    def fingerprint(self) -> str:
        """A digest of keys, labels and the change, of the paths, sizes and times of files, and of other images.

        Of an object in a store, its URL, size and version (ETag) count, which are asked for if no listing told them.

        It is computed once: a set whose files have changed since has to be found again.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256("\n".join(self.keys).encode("utf8", "surrogateescape"))
        digest.update(repr((self.labels, self.change)).encode())
        if self.max_pixels != MAX_PIXELS:
            digest.update(f"{self.max_pixels}".encode())  # it decides which images can be read
        if self.array is not None:
            digest.update(np.ascontiguousarray(self.array).data)
        for identity in _identities(self.paths or self.items):
            digest.update(identity)
        return digest.hexdigest()

    def files(self) -> list[str]:
        """Absolute paths and URLs of the images; empty unless each is a file or an object of its own."""
        if self.paths:
            return [os.path.abspath(path) for path in self.paths]
        urls = [str(item.url) for item in self.items if isinstance(item, RemoteFile)]
        return urls if len(urls) == len(self.items) else []

    def by_name(self, reasons: Mapping[str, str]) -> dict[str, str]:
        """What is known by the keys of images, by their names."""
        names = dict(zip(self.keys, self.names, strict=True))
        return {names.get(key, key): reason for key, reason in reasons.items()}


def _identities(items: Sequence[Item]) -> Iterable[bytes]:
    """Those of all images; stores are asked by several threads."""
    if not any(isinstance(item, Stored) for item in items):
        return map(_identity, items)
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        return list(pool.map(_identity, items))


def _identity(item: Item) -> bytes:
    """What tells one image from another: the path, size and times of a file, the content of anything else."""
    if isinstance(item, Path):
        try:
            status = item.stat()
        except (OSError, ValueError):  # such as a name with a zero byte
            return b"missing"
        identity = f"{item.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        return identity.encode("utf8", "surrogateescape")
    if isinstance(item, Stored):
        return item.identity().encode("utf8", "surrogateescape")
    if isinstance(item, Image.Image):
        return f"{item.mode} {item.size}".encode() + hashlib.sha256(item.tobytes()).digest()
    content = item if isinstance(item, bytes) else np.ascontiguousarray(item).tobytes()
    return f"{getattr(item, 'shape', '')}".encode() + hashlib.sha256(content).digest()
