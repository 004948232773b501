"""Sources of images: folders, lists, arrays and single files, read as named images in a fixed order."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from adascale.core.errors import InputError
from adascale.images.preprocess import draft

SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
LIST_SUFFIXES = frozenset((".txt", ".lst", ".list"))


class Change(Protocol):
    """A change of every image after it is opened. Its ``repr`` must show all that shapes the result."""

    def __call__(self, image: Image.Image, name: str) -> Image.Image: ...


@dataclass(frozen=True)
class ImageSet:
    """Named images in a fixed order: files, or the rows of an array. They have class labels where these are known."""

    names: Sequence[str]
    paths: Sequence[Path] = ()
    array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None = None
    labels: Sequence[int] | None = None
    change: Change | None = None

    def __len__(self) -> int:
        return len(self.names)

    def open(self, index: int, least: int | None = None) -> Image.Image:
        """One image. least: the decoder may save time by a smaller image, with sides of at least this length."""
        image: Image.Image
        if self.array is not None:
            image = Image.fromarray(self.array[index])
        else:
            with Image.open(self.paths[index]) as image:
                if least is not None:
                    draft(image, least)
                image.load()  # the first frame, if there are several
        return image if self.change is None else self.change(image, self.names[index])

    def subset(self, indices: Sequence[int]) -> ImageSet:
        """These images, in this order."""
        return replace(
            self,
            names=[self.names[i] for i in indices],
            paths=[self.paths[i] for i in indices] if self.paths else (),
            array=None if self.array is None else self.array[list(indices)],
            labels=None if self.labels is None else [self.labels[i] for i in indices],
        )

    def fingerprint(self) -> str:
        """A digest of names, labels and the change, of the paths, sizes and times of files, and of the array.

        It is computed once: a set whose files have changed since has to be found again.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256("\n".join(self.names).encode("utf8", "surrogateescape"))
        digest.update(repr((self.labels, self.change)).encode())
        if self.array is not None:
            digest.update(np.ascontiguousarray(self.array).data)
        for path in self.paths:
            try:
                status = path.stat()
                identity = f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
                digest.update(identity.encode("utf8", "surrogateescape"))
            except OSError:
                digest.update(b"missing")
        return digest.hexdigest()


def find_images(source: str | Path, root: str | Path | None = None) -> ImageSet:
    """The images of a folder (recursive), an image list, an .npz, one file, or ``-`` for a list on standard input.

    List lines are ``path`` or ``path label`` (OpenOOD's format); relative paths start at ``root``, by default the
    list's folder. An .npz holds ``images`` (uint8: N, H, W or N, H, W, 3) and, if known, ``labels``.
    """
    if str(source) == "-":
        return _from_list(sys.stdin.read(), Path(root or "."), "standard input")
    path = Path(source)
    if path.is_dir():
        found = _image_files(path)
        if not found:
            raise InputError(f"The folder {path} holds no image ({', '.join(sorted(SUFFIXES))}); give another folder.")
        return ImageSet([str(p.relative_to(path)) for p in found], found)
    if not path.exists():
        raise InputError(f"There is no file or folder {path}; give a folder, an image, an image list or an .npz.")
    if path.suffix.lower() == ".npz":
        return _from_npz(path)
    if path.suffix.lower() in LIST_SUFFIXES:
        return _from_list(path.read_text("utf8", "surrogateescape"), Path(root) if root else path.parent, str(path))
    return ImageSet([path.name], [path])


def find_labelled(
    source: str | Path, root: str | Path | None = None, classes: Sequence[str] | None = None
) -> tuple[ImageSet, list[str] | None]:
    """Images with a class label each, and the names of the classes where they have any.

    The subfolders of a folder are its classes, numbered in the order of their names (or as in ``classes``); a list or
    an .npz brings its labels.
    """
    if Path(source).is_dir():
        return _from_class_folders(Path(source), classes)
    found = find_images(source, root)
    if found.labels is None:
        raise InputError(
            f"{source} has no class for each image; give 'path label' lines, an .npz with labels, a folder of classes."
        )
    if not all(isinstance(label, int) for label in found.labels):
        raise InputError(
            f"{source} has {len(found)} images and labels of another shape; it needs one whole number for each."
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
    return ImageSet([str(file.relative_to(path)) for file in files], list(files), labels=list(files.values())), names


def _image_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())


def _from_list(text: str, root: Path, origin: str) -> ImageSet:
    names, labels = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, last = line.rpartition(" ")
        labelled = name and last.lstrip("-").isdigit()
        names.append(name if labelled else line)
        if labelled:
            labels.append(int(last))
    if not names:
        raise InputError(f"The image list {origin} is empty; it needs a path on each line, which a label may follow.")
    return ImageSet(names, [root / name for name in names], labels=labels if len(labels) == len(names) else None)


def _from_npz(path: Path) -> ImageSet:
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in ("images", "labels") if key in file.files}
    except Exception as error:  # damaged archives raise exceptions of many kinds
        raise InputError(f"{path} cannot be read as .npz ({error}); write it with numpy.savez.") from error
    images = arrays.get("images")
    if images is None or images.dtype != np.uint8 or not (images.ndim == 3 or images.shape[3:] == (3,)):
        given = "no array 'images'" if images is None else f"images of {images.dtype} {images.shape}"
        raise InputError(f"{path} has {given}; it needs uint8 (N, H, W) or (N, H, W, 3) under 'images'.")
    if not len(images):
        raise InputError(f"{path} holds no image; its array 'images' is empty.")
    labels = arrays.get("labels")
    if labels is not None and labels.shape[:1] != images.shape[:1]:
        raise InputError(f"{path} has {len(images)} images and {labels.size} labels; give one for each.")
    names = [f"{path.name}[{i}]" for i in range(len(images))]
    return ImageSet(names, array=images, labels=None if labels is None else labels.tolist())
