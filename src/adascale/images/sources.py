"""Sources of images: folders, lists, arrays, shards and single files, read as named images in a fixed order.

Wherever a path may stand, a URL may (see `adascale.storage.remote`); its images are named by their URLs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from adascale.core.errors import InputError
from adascale.images.image_set import Change, ImageSet
from adascale.images.limits import MAX_PIXELS, check_max_pixels
from adascale.images.npz import read_npz
from adascale.images.pixels import Item, is_image_data
from adascale.images.places import (
    ADVICE,
    ARRAY_SUFFIX,
    DATASET,
    LIST_SUFFIXES,
    SHARD_SUFFIXES,
    SUFFIXES,
    Given,
    as_texts,
    listed,
    name_under,
)
from adascale.images.shard_files import ShardFile, read_shard_files
from adascale.images.stored import RemoteFile
from adascale.storage.remote import Place, Url, as_place, is_url

_ASKED_AT_ONCE = 16
__all__ = ["Change", "ImageSet", "find_images", "find_labelled", "shard_files"]


def find_images(
    source: Given | Sequence[Given], root: str | Place | None = None, max_pixels: int = MAX_PIXELS
) -> ImageSet:
    """The images of a folder (recursive), a file, a glob, an image list, an .npz, .tar or .parquet, or of several.

    Each may be a URL. A folder without images may hold .tar and .parquet files. ``hf-dataset:NAME_OR_DIR#SPLIT`` is a
    data set of Hugging Face.

    ``-`` is an image, or a list, on standard input. List lines are ``path`` or ``path label`` (OpenOOD's format);
    relative paths start at ``root``, by default the list's folder. An .npz holds ``images`` (uint8: N, H, W or N, H,
    W, 3) and, if known, ``labels``. Images have the names that the user would give them: ``new/a.png`` in the folder
    ``new``. max_pixels: larger pictures cannot be read, and an .npz may unpack to at most ten bytes for each of these
    pixels.

    For example:

        >>> images = find_images("my/new_images")
        >>> len(images), images.names[0]
        (6, 'my/new_images/0.png')
    """
    places, max_pixels = as_texts(source), check_max_pixels(max_pixels)
    if not places:
        raise InputError(f"No path was given; {ADVICE}.")
    if len(places) == 1:
        return _found(places[0], root, max_pixels)
    distinct = list(dict.fromkeys(places))
    if any(map(is_url, distinct)):
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
            parts = list(pool.map(lambda place: _found(place, root, max_pixels), distinct))
    else:
        parts = [_found(place, root, max_pixels) for place in distinct]
    return _joined(dict(zip(distinct, parts, strict=True)), places)


def _found(given: str, root: str | Place | None, max_pixels: int) -> ImageSet:
    if given == "-":
        return _from_stdin(root, max_pixels)
    if given.startswith(DATASET):
        return read_shard_files(shard_files(given), max_pixels)
    place = as_place(given)
    if place.is_dir():
        return _from_folder(place, given, max_pixels)
    if not place.exists():
        raise InputError(f"There is no file or folder {place}; {ADVICE}.")
    suffix = place.suffix.lower()
    if suffix == ARRAY_SUFFIX:
        return _from_npz(place, given, max_pixels)
    if suffix in LIST_SUFFIXES:
        text = place.read_bytes().decode("utf8", "surrogateescape")  # which leaves the ends of lines alone
        return _from_list(text, as_place(root) if root else place.parent, str(place), max_pixels)
    if suffix in SHARD_SUFFIXES:
        return read_shard_files(shard_files(given), max_pixels)
    if isinstance(place, Url):
        return ImageSet([given], items=[RemoteFile(place, None, None)], keys=[place.name], max_pixels=max_pixels)
    return ImageSet([given], [place], keys=[place.name], max_pixels=max_pixels)


def _from_folder(folder: Place, given: str, max_pixels: int) -> ImageSet:
    """The images in a folder; where there are none, those in the shards in it."""
    if isinstance(folder, Url):
        objects = [one for one in folder.find() if one.url.suffix.lower() in SUFFIXES]
        if objects:
            items = [RemoteFile(one.url, one.size, one.version) for one in objects]
            names, keys = [str(one.url) for one in objects], [one.inside for one in objects]
            return ImageSet(names, items=items, keys=keys, max_pixels=max_pixels)
    elif found := _image_files(folder):
        names = [name_under(given, file, folder) for file in found]
        keys = [str(file.relative_to(folder)) for file in found]
        return ImageSet(names, found, keys=keys, max_pixels=max_pixels)
    if shards := shard_files(given):
        return read_shard_files(shards, max_pixels)
    raise InputError(f"The folder {folder} holds no image ({', '.join(sorted(SUFFIXES))}); give another folder.")


def shard_files(given: str) -> list[ShardFile]:
    """The .tar and .parquet files, or the data set, that a place stands for; none if it is made of single images."""
    if given.startswith(DATASET):
        return [ShardFile(given, given, given)]
    place = as_place(given)
    if place.suffix.lower() in SHARD_SUFFIXES and not place.is_dir():
        return [ShardFile(place, given, place.name)] if place.exists() else []
    if not place.is_dir():
        return []
    if isinstance(place, Url):
        found = place.find()
        if any(one.url.suffix.lower() in SUFFIXES for one in found):
            return []
        return [
            ShardFile(one.url, str(one.url), one.inside) for one in found if one.url.suffix.lower() in SHARD_SUFFIXES
        ]
    if _image_files(place):
        return []
    files = sorted(p for p in place.rglob("*") if p.suffix.lower() in SHARD_SUFFIXES and p.is_file())
    return [ShardFile(file, name_under(given, file, place), str(file.relative_to(place))) for file in files]


def _from_stdin(root: str | Place | None, max_pixels: int) -> ImageSet:
    """An image, told by its first bytes, or a list of images."""
    binary = getattr(sys.stdin, "buffer", None)
    data = sys.stdin.read().encode("utf8", "surrogateescape") if binary is None else binary.read()
    if is_image_data(data):
        return ImageSet(["-"], items=[data], max_pixels=max_pixels)
    return _from_list(data.decode("utf8", "surrogateescape"), as_place(root or "."), "standard input", max_pixels)


def _joined(parts: Mapping[str, ImageSet], places: Sequence[str]) -> ImageSet:
    """The images of several sources, in order. A folder leaves out the files that an earlier source has."""
    kept: list[tuple[ImageSet, int, str]] = []
    seen: set[str] = set()
    for number, place in enumerate(places):
        part = parts[place]
        paths = part.files()
        shared = seen.intersection(paths)
        known = shared if shared and as_place(place).is_dir() else ()
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
    source: str | Place,
    root: str | Place | None = None,
    classes: Sequence[str] | None = None,
    max_pixels: int = MAX_PIXELS,
) -> tuple[ImageSet, list[str] | None]:
    """Images with a class label each, and the names of the classes where they have any.

    The subfolders of a folder are its classes, numbered in the order of their names (or as in ``classes``); a list or
    an .npz brings its labels. max_pixels: as for `find_images`.

    For example:

        >>> images, names = find_labelled("my")  # its subfolders are the classes
        >>> len(images) == len(images.labels), "near" in names
        (True, True)
    """
    if (place := as_place(source)).is_dir() and not shard_files(str(source)):
        found, names = _from_class_folders(place, classes)
        return replace(found, max_pixels=check_max_pixels(max_pixels)), names
    found = find_images(source, root, max_pixels)
    if found.labels is None:
        raise InputError(
            f"{source} has no class for each image; give 'path label' lines, an .npz with a whole number for each "
            "under 'labels', or a folder of classes."
        )
    return found, None


def _from_class_folders(path: Place, classes: Sequence[str] | None) -> tuple[ImageSet, list[str]]:
    present, found = _classes_at(path) if isinstance(path, Url) else _classes_in(path)
    names = present if classes is None else list(classes)
    if unknown := set(present) - set(names):
        raise InputError(f"{path} has a class {min(unknown)!r} that the training images do not have.")
    if not len(found):
        raise InputError(f"{path} has no subfolders with images; it needs one subfolder for each class.")
    return replace(found, labels=[names.index(Path(key).parts[0]) for key in found.keys]), names


def _classes_in(path: Path) -> tuple[list[str], ImageSet]:
    """The subfolders of a folder, and the images in them."""
    present = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith("."))
    files = [file for name in present for file in _image_files(path / name)]
    keys = [str(file.relative_to(path)) for file in files]
    return present, ImageSet([name_under(str(path), file, path) for file in files], files, keys=keys)


def _classes_at(url: Url) -> tuple[list[str], ImageSet]:
    whole = _from_folder(url, str(url), MAX_PIXELS)
    inner = [i for i, key in enumerate(whole.keys) if "/" in key and not key.startswith(".")]
    found = whole.subset(inner)
    return sorted({key.split("/")[0] for key in found.keys}), found


def _image_files(folder: Path) -> list[Path]:
    """What is named like an image: also broken links, pipes and so on, whose rows say why they cannot be read."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and not p.is_dir())


def _from_list(text: str, root: Place, origin: str, max_pixels: int) -> ImageSet:
    names, labels = listed(text)
    if not names:
        raise InputError(f"The image list {origin} is empty; it needs a path on each line, which a label may follow.")
    places = [_line(name, root) for name in names]
    if isinstance(root, Path) and all(isinstance(place, Path) for place in places):
        paths = [place for place in places if isinstance(place, Path)]
        return ImageSet(names, paths, labels=labels, max_pixels=max_pixels)
    items: list[Item] = [RemoteFile(place, None, None) if isinstance(place, Url) else place for place in places]
    shown = [str(place) if isinstance(place, Url) else name for place, name in zip(places, names, strict=True)]
    return ImageSet(shown, items=items, labels=labels, keys=names, max_pixels=max_pixels)


def _line(name: str, root: Place) -> Place:
    """What a line of a list names: a URL, an absolute path, or a path from the root on."""
    if "://" in name:
        return as_place(name)
    return Path(name) if os.path.isabs(name) else root / name


def _from_npz(path: Place, given: str, max_pixels: int) -> ImageSet:
    images, labels = read_npz(path, max_pixels)
    names, keys = ([f"{name}[{i}]" for i in range(len(images))] for name in (given, path.name))
    return ImageSet(names, array=images, labels=labels, keys=keys, max_pixels=max_pixels)
