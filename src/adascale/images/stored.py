"""Images that are read when they are needed: objects at URLs, members of tars, cells of Parquet files and so on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from adascale.images.limits import ENCODED, check_file_bytes
from adascale.storage.remote import Url


class Stored(ABC):
    """One image somewhere. Threads read several of them at once."""

    __slots__ = ()

    @contextmanager
    def held(self, max_pixels: int) -> Iterator[bytes]:
        """Its bytes. While the context lasts, they count as memory in use; too many are refused before they are read.

        What is wrong with this image alone is one of `adascale.images.pixels.READ_ERRORS`, and its row says so.
        """
        size = check_file_bytes(self.bytes_needed(), max_pixels)
        with ENCODED.share(size):
            data = self.read()
            check_file_bytes(len(data), max_pixels)  # where the size was not known before
            yield data

    @property
    def remote(self) -> bool:
        """Whether it comes over a network, so that many threads are worth while."""
        return False

    @abstractmethod
    def bytes_needed(self) -> int:
        """How many bytes reading it takes."""

    @abstractmethod
    def read(self) -> bytes: ...

    @abstractmethod
    def identity(self) -> str:
        """A text that changes with the image, without reading it."""


class Entries(NamedTuple):
    """The images of one shard, by their names in it. labels: None unless every image has one."""

    names: Sequence[str]
    items: Sequence[Stored]
    labels: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class RemoteFile(Stored):
    """A whole object. size and version are asked for when they are needed, unless a listing told them."""

    url: Url
    size: int | None
    version: str | None

    @property
    def remote(self) -> bool:
        return True

    def bytes_needed(self) -> int:
        return self.url.info()[0] if self.size is None else self.size

    def read(self) -> bytes:
        size = self.bytes_needed()
        return self.url.read_bytes(0, size) if size else b""

    def identity(self) -> str:
        if self.version is not None:
            return f"{self.url} {self.size} {self.version}"
        try:
            return " ".join(map(str, (self.url, *self.url.info())))
        except OSError:
            return "missing"
