"""Sources of images: folders, lists, arrays and single files, read as named images in a fixed order."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from adascale.core.errors import InputError
from adascale.images.limits import MAX_PIXELS, check_max_pixels
from adascale.images.npz import read_npz
from adascale.images.pixels import Item, is_image_data, opened
from adascale.images.places import ADVICE, ARRAY_SUFFIX, LIST_SUFFIXES, SUFFIXES, as_texts, listed, name_under


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
        for item in self.paths or self.items:
            digest.update(_identity(item))
        return digest.hexdigest()

    def by_name(self, reasons: Mapping[str, str]) -> dict[str, str]:
        """What is known by the keys of images, by their names."""
        names = dict(zip(self.keys, self.names, strict=True))
        return {names.get(key, key): reason for key, reason in reasons.items()}


def _identity(item: Item) -> bytes:
    """What tells one image from another: the path, size and times of a file, the content of anything else."""
    if isinstance(item, Path):
        try:
            status = item.stat()
        except (OSError, ValueError):  # such as a name with a zero byte
            return b"missing"
        identity = f"{item.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        return identity.encode("utf8", "surrogateescape")
    if isinstance(item, Image.Image):
        return f"{item.mode} {item.size}".encode() + hashlib.sha256(item.tobytes()).digest()
    content = item if isinstance(item, bytes) else np.ascontiguousarray(item).tobytes()
    return f"{getattr(item, 'shape', '')}".encode() + hashlib.sha256(content).digest()


def find_images(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    root: str | Path | None = None,
    max_pixels: int = MAX_PIXELS,
) -> ImageSet:
    """The images of a folder (recursive), a file, a glob, an image list, an .npz, or of several of them.

    ``-`` is an image, or a list, on standard input. List lines are ``path`` or ``path label`` (OpenOOD's format);
    relative paths start at ``root``, by default the list's folder. An .npz holds ``images`` (uint8: N, H, W or N, H,
    W, 3) and, if known, ``labels``. Images have the names that the user would give them: ``new/a.png`` in the folder
    ``new``. max_pixels: larger pictures cannot be read, and an .npz may unpack to at most ten bytes for each of these
    pixels.
    """
    places, max_pixels = as_texts(source), check_max_pixels(max_pixels)
    if not places:
        raise InputError(f"No path was given; {ADVICE}.")
    if len(places) == 1:
        return _found(places[0], root, max_pixels)
    return _joined({place: _found(place, root, max_pixels) for place in dict.fromkeys(places)}, places)


def _found(given: str, root: str | Path | None, max_pixels: int) -> ImageSet:
    if given == "-":
        return _from_stdin(root, max_pixels)
    path = Path(given)
    if path.is_dir():
        found = _image_files(path)
        if not found:
            raise InputError(f"The folder {path} holds no image ({', '.join(sorted(SUFFIXES))}); give another folder.")
        names = [name_under(given, file, path) for file in found]
        keys = [str(file.relative_to(path)) for file in found]
        return ImageSet(names, found, keys=keys, max_pixels=max_pixels)
    if not path.exists():
        raise InputError(f"There is no file or folder {path}; {ADVICE}.")
    if path.suffix.lower() == ARRAY_SUFFIX:
        return _from_npz(path, given, max_pixels)
    if path.suffix.lower() in LIST_SUFFIXES:
        text = path.read_bytes().decode("utf8", "surrogateescape")  # which leaves the ends of lines alone
        return _from_list(text, Path(root) if root else path.parent, str(path), max_pixels)
    return ImageSet([given], [path], keys=[path.name], max_pixels=max_pixels)


def _from_stdin(root: str | Path | None, max_pixels: int) -> ImageSet:
    """An image, told by its first bytes, or a list of images."""
    binary = getattr(sys.stdin, "buffer", None)
    data = sys.stdin.read().encode("utf8", "surrogateescape") if binary is None else binary.read()
    if is_image_data(data):
        return ImageSet(["-"], items=[data], max_pixels=max_pixels)
    return _from_list(data.decode("utf8", "surrogateescape"), Path(root or "."), "standard input", max_pixels)


def _joined(parts: Mapping[str, ImageSet], places: Sequence[str]) -> ImageSet:
    """The images of several sources, in order. A folder leaves out the files that an earlier source has."""
    kept: list[tuple[ImageSet, int, str]] = []
    seen: set[str] = set()
    for number, place in enumerate(places):
        part = parts[place]
        paths = [os.path.abspath(path) for path in part.paths]
        known = seen if os.path.isdir(place) else ()
        kept += [(part, i, f"{number}:{key}") for i, key in enumerate(part.keys) if not paths or paths[i] not in known]
        seen.update(paths)
    items = [part.item(i) for part, i, _ in kept]
    files: dict[str, Any] = {"paths" if all(isinstance(item, Path) for item in items) else "items": items}
    labels = [part.labels[i] for part, i, _ in kept if part.labels is not None]
    return ImageSet(
        [part.names[i] for part, i, _ in kept],
        labels=labels if len(labels) == len(kept) else None,
        keys=[key for *_, key in kept],
        max_pixels=kept[0][0].max_pixels,
        **files,
    )


def find_labelled(
    source: str | Path,
    root: str | Path | None = None,
    classes: Sequence[str] | None = None,
    max_pixels: int = MAX_PIXELS,
) -> tuple[ImageSet, list[str] | None]:
    """Images with a class label each, and the names of the classes where they have any.

    The subfolders of a folder are its classes, numbered in the order of their names (or as in ``classes``); a list or
    an .npz brings its labels. max_pixels: as for `find_images`.
    """
    if Path(source).is_dir():
        found, names = _from_class_folders(Path(source), classes)
        return replace(found, max_pixels=check_max_pixels(max_pixels)), names
    found = find_images(source, root, max_pixels)
    if found.labels is None:
        raise InputError(
            f"{source} has no class for each image; give 'path label' lines, an .npz with a whole number for each "
            "under 'labels', or a folder of classes."
        )
    return found, None


def _from_class_folders(path: Path, classes: Sequence[str] | None) -> tuple[ImageSet, list[str]]:
    present = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith("."))
    names = present if classes is None else list(classes)
    if unknown := set(present) - set(names):
        raise InputError(f"{path} has a class {min(unknown)!r} that the training images do not have.")
    files = {file: names.index(name) for name in present for file in _image_files(path / name)}
    if not files:
        raise InputError(f"{path} has no subfolders with images; it needs one subfolder for each class.")
    keys = [str(file.relative_to(path)) for file in files]
    given = [name_under(str(path), file, path) for file in files]
    return ImageSet(given, list(files), labels=list(files.values()), keys=keys), names


def _image_files(folder: Path) -> list[Path]:
    """What is named like an image: also broken links, pipes and so on, whose rows say why they cannot be read."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and not p.is_dir())


def _from_list(text: str, root: Path, origin: str, max_pixels: int) -> ImageSet:
    names, labels = listed(text)
    if not names:
        raise InputError(f"The image list {origin} is empty; it needs a path on each line, which a label may follow.")
    return ImageSet(names, [root / name for name in names], labels=labels, max_pixels=max_pixels)


def _from_npz(path: Path, given: str, max_pixels: int) -> ImageSet:
    images, labels = read_npz(path, max_pixels)
    names, keys = ([f"{name}[{i}]" for i in range(len(images))] for name in (given, path.name))
    return ImageSet(names, array=images, labels=labels, keys=keys, max_pixels=max_pixels)
