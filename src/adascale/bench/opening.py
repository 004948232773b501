"""The images of a suite's sets: found on disk, cut to rows, corrupted, drawn, kept apart."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adascale.core.errors import InputError
from adascale.images.limits import MAX_PIXELS
from adascale.images.places import LIST_SUFFIXES, expanded, present
from adascale.images.sources import ImageSet, find_images
from adascale.storage.remote import as_place

if TYPE_CHECKING:
    from adascale.bench.suites import Source

_MOST_VAL, _LEAST_VAL = 1000, 10


class AbsentError(Exception):
    """Something is not where it should be; the text says where that is."""


def open_source(source: Source, own: ImageSet | None, seed: int, max_pixels: int = MAX_PIXELS) -> ImageSet:
    """The images of one set. own: the ID images of the suite. seed: seed of the corruptions."""
    if source.images is None:
        assert own is not None
        found = own
    elif source.images.startswith("digits:"):
        from adascale.network.digits import digit_images  # imports torch

        found = digit_images(source.images.removeprefix("digits:"))
    else:
        found = _found(source.images, source.root, max_pixels)
    if source.labels is not None:
        found = replace(found, labels=_labels(found, Path(source.labels)))
    if source.rows is not None:
        if source.rows[1] > len(found):
            raise InputError(f"rows = {list(source.rows)}, but {source.images} has {len(found)} images.")
        found = found.subset(range(*source.rows))
    return found if source.corrupt is None else replace(found, change=replace(source.corrupt, seed=seed))


def _found(given: str, root: str | None, max_pixels: int) -> ImageSet:
    if not present(expanded(given)[0]):  # what a glob matches is there
        raise AbsentError(given)
    place = as_place(given)
    try:
        images = find_images(given, root, max_pixels)
    except InputError:
        if place.is_dir():
            raise AbsentError(f"{given}, which holds no image") from None
        raise
    if place.suffix.lower() in LIST_SUFFIXES and place.is_file() and images.paths and not images.paths[0].exists():
        raise AbsentError(f"{images.paths[0]}, the first image of {given}")
    return images


def _labels(images: ImageSet, table: Path) -> list[int]:
    """The classes from a table, by the name of the image or of its file; a first line with titles is skipped."""
    if not table.is_file():
        raise AbsentError(str(table))
    with open(table, newline="", encoding="utf8", errors="replace") as lines:
        rows = [row for row in csv.reader(lines) if len(row) >= 2]
    known = {row[0]: int(row[1]) for row in rows if re.fullmatch(r"-?\d+", row[1].strip())}
    pairs = zip(images.keys, images.names, strict=True)
    keys = [key if key in known else os.path.basename(key if os.sep in key else name) for key, name in pairs]
    if unknown := [key for key in keys if key not in known]:
        raise InputError(f"{table} has no class for {unknown[0]} ({len(unknown)} such); give filename,class_index.")
    return [known[key] for key in keys]


def set_aside(images: ImageSet, seed: int) -> tuple[ImageSet, ImageSet]:
    """Split ID images into those to test on and those to fit on."""
    count = min(_MOST_VAL, max(_LEAST_VAL, len(images) // 5), len(images) // 2)
    if not count:
        raise InputError("The ID set has 1 image; give val, or at least 2 ID images.")
    order = np.random.default_rng(seed).permutation(len(images))
    return images.subset(sorted(order[count:].tolist())), images.subset(sorted(order[:count].tolist()))


def at_most(images: ImageSet, limit: int | None, seed: int) -> ImageSet:
    """At most ``limit`` images, drawn at random with ``seed``, in their order."""
    if limit is None or len(images) <= limit:
        return images
    return images.subset(sorted(np.random.default_rng(seed).permutation(len(images))[:limit].tolist()))


def refuse_shared(name: str, images: ImageSet, others: Mapping[str, ImageSet]) -> None:
    """Refuse the same file on both sides, whatever the folders and lists are called."""
    mine = set(images.files())
    for label, other in others.items():
        if shared := mine & set(other.files()):
            raise InputError(f"{name} and {label} share {len(shared)} images ({min(shared)} ...); they must not.")
