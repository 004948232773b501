"""Tar files of images (WebDataset shards), read in place: an index of the members, then ranges of the file.

The members that are named like images are images, in their order in the tar. ``KEY.cls`` beside ``KEY.jpg`` holds the
label of that image, where KEY ends at the first dot of the file name (the convention of WebDataset).
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from adascale.core.errors import AdascaleError, InputError
from adascale.core.folders import cache_folder
from adascale.images.places import SUFFIXES
from adascale.images.stored import Entries, Stored
from adascale.storage.atomic import write_text
from adascale.storage.remote import Place, Url, opened, version_of

_LABEL, _LONGEST_LABEL = ".cls", 20
_INDEX_VERSION = 1


@dataclass(frozen=True, slots=True)
class TarMember(Stored):
    """Bytes ``start`` to ``start + size`` of a tar. version: that of the tar."""

    place: Place
    start: int
    size: int
    version: str

    @property
    def remote(self) -> bool:
        return isinstance(self.place, Url)

    def bytes_needed(self) -> int:
        return self.size

    def read(self) -> bytes:
        if not self.size:
            return b""
        if isinstance(self.place, Url):
            return self.place.read_bytes(self.start, self.start + self.size)
        with open(self.place, "rb") as file:
            file.seek(self.start)
            return file.read(self.size)

    def identity(self) -> str:
        return f"{self.version} {self.start} {self.size}"


def tar_entries(place: Place, version: str | None = None) -> Entries:
    """The images of a tar. The index of a remote tar takes one read of it, and is then kept in the cache folder.

    version: of the content, if it is known.
    """
    version = version or version_of(place)
    rows = _kept_index(place, version) if isinstance(place, Url) else _index(place)
    labels = [label for *_, label in rows if label is not None]
    items = [TarMember(place, start, size, version) for _, start, size, _ in rows]
    return Entries([row[0] for row in rows], items, labels if len(labels) == len(rows) else None)


def _kept_index(url: Url, version: str) -> list[Any]:
    digest = hashlib.sha256(f"{_INDEX_VERSION} {version}".encode("utf8", "surrogateescape")).hexdigest()[:32]
    path = cache_folder() / "indexes" / f"{digest}.json"
    with suppress(OSError, ValueError):
        kept: list[Any] = json.loads(path.read_text("utf8"))
        return kept
    made = _index(url)
    with suppress(OSError):  # the next run reads the tar again
        write_text(path, json.dumps(made))
    return made


def _index(place: Place) -> list[tuple[str, int, int, int | None]]:
    """Name, start, size and label of each image. Of two members with one name the last counts, as when unpacking."""
    found: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with opened(place) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                ending = os.path.splitext(member.name)[1].lower()
                if not member.isreg() or member.sparse is not None:
                    continue
                if ending in SUFFIXES:
                    found[member.name] = (member.offset_data, member.size)
                elif ending == _LABEL and member.size <= _LONGEST_LABEL and (text := tar.extractfile(member)):
                    labels |= _label(member.name, text.read())
                tar.members.clear()  # type: ignore[attr-defined] # it would keep them all
    except AdascaleError:
        raise
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{place} cannot be read as a tar ({reason}); write it with tar cf, without -z.") from error
    if not found:
        raise InputError(f"{place} holds no image ({', '.join(sorted(SUFFIXES))}); give another tar.")
    return [(f"/{name}", *span, labels.get(_key(name))) for name, span in found.items()]


def _key(name: str) -> str:
    folder, file = os.path.split(name)
    return f"{folder}/{file.partition('.')[0]}"


def _label(name: str, text: bytes) -> dict[str, int]:
    try:
        return {_key(name): int(text)}
    except ValueError:
        return {}
