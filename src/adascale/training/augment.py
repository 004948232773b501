"""Training images: labels, order and augmentation, each a pure function of seed, epoch and image."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from adascale.core.errors import InputError
from adascale.images.decode import eight_bit
from adascale.images.preprocess import Preprocess
from adascale.images.sources import SUFFIXES, ImageSet, find_images

_SMALL = 64
_AREA, _ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)


def labelled(
    source: str | Path, root: str | Path | None = None, classes: Sequence[str] | None = None
) -> tuple[ImageSet, list[str] | None]:
    """Images with their classes, and the classes' names where they have any.

    A folder's subfolders are its classes, counted in the order of their names (or as in ``classes``); a list or an
    .npz brings its labels.
    """
    path = Path(source)
    if path.is_dir():
        return _class_folders(path, classes)
    found = find_images(source, root)
    if found.labels is None:
        raise InputError(
            f"{source} has no class for each image; give 'path label' lines, an .npz with labels, a folder of classes."
        )
    if len(found.labels) != len(found) or not all(isinstance(label, int) for label in found.labels):
        raise InputError(
            f"{source} has {len(found)} images and labels of another shape; it needs one whole number for each."
        )
    return found, None


def _class_folders(path: Path, classes: Sequence[str] | None) -> tuple[ImageSet, list[str]]:
    present = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith("."))
    names = present if classes is None else list(classes)
    if unknown := set(present) - set(names):
        raise InputError(f"{path} has a class {min(unknown)!r} that the training images do not have.")
    numbers = {name: number for number, name in enumerate(names)}
    files, labels = [], []
    for name in present:
        found = sorted(p for p in (path / name).rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        files += found
        labels += [numbers[name]] * len(found)
    if not files:
        raise InputError(f"{path} has no subfolders with images; its classes are subfolders, one for each.")
    return ImageSet([str(p.relative_to(path)) for p in files], files, labels=labels), names


def check_labels(images: ImageSet, classes: int, origin: str) -> None:
    """Every label is a class of the network."""
    labels = images.labels or ()
    wrong = next((label for label in labels if not 0 <= label < classes), None)
    if wrong is not None:
        raise InputError(
            f"{origin} has the class {wrong}; the network has {classes} classes, counted from 0 to {classes - 1}."
        )


@dataclass(frozen=True)
class Augment:
    """The standard augmentation of one epoch, to exactly ``side`` (height, width).

    Up to 64 pixels: an eighth of the side as a black margin (4 of 32), a random crop, a random mirror. Above: a crop
    of 8 to 100 % of the area with an aspect from 3/4 to 4/3, resized, and a random mirror (Szegedy et al., 2015).
    """

    side: tuple[int, int]
    preprocess: Preprocess
    seed: int = 0
    epoch: int = 0

    def __call__(self, image: Image.Image, name: str) -> Image.Image:
        draw = np.random.default_rng(_number(self.seed, self.epoch, name))
        image = eight_bit(image).convert("RGB" if len(self.preprocess.mean) == 3 else "L")
        cut = self._shifted if max(self.side) <= _SMALL else self._zoomed
        image = cut(image, draw)
        return ImageOps.mirror(image) if draw.random() < 0.5 else image

    def _shifted(self, image: Image.Image, draw: np.random.Generator) -> Image.Image:
        height, width = self.side
        image = image if image.size == (width, height) else image.resize((width, height), self._filter)
        down, right = height // 8, width // 8
        image = ImageOps.expand(image, (right, down, right, down))
        left, top = int(draw.integers(2 * right + 1)), int(draw.integers(2 * down + 1))
        return image.crop((left, top, left + width, top + height))

    def _zoomed(self, image: Image.Image, draw: np.random.Generator) -> Image.Image:
        full = image.width * image.height
        height, width = self.side
        box = (0, 0, image.width, image.height)
        for _ in range(10):
            area = full * draw.uniform(*_AREA)
            aspect = math.exp(draw.uniform(math.log(_ASPECT[0]), math.log(_ASPECT[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= image.width and 0 < h <= image.height:
                left, top = int(draw.integers(image.width - w + 1)), int(draw.integers(image.height - h + 1))
                box = (left, top, left + w, top + h)
                break
        return image.resize((width, height), self._filter, box)

    @property
    def _filter(self) -> Image.Resampling:
        return Image.Resampling[self.preprocess.interpolation.upper()]


def input_side(preprocess: Preprocess) -> tuple[int, int]:
    """Height and width of a network's input."""
    side = preprocess.crop if preprocess.crop is not None else preprocess.size
    return (side, side) if isinstance(side, int) else side


def epoch_images(
    images: ImageSet,
    preprocess: Preprocess,
    seed: int,
    epoch: int,
    batch_size: int,
    part: tuple[int, int] = (0, 1),
    augment: bool = True,
) -> tuple[ImageSet, Preprocess]:
    """The images in the epoch's order with its augmentation, if any, and what is left of the preprocessing.

    Incomplete batches are left out, unless there is no other. part: (i, n) takes the i-th of n equal parts of each
    batch.
    """
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(_number(seed, epoch, "order"))).tolist()
    batch_size = min(batch_size, len(order))
    share = batch_size // part[1]
    starts = range(part[0] * share, len(order) // batch_size * batch_size, batch_size)
    mine = [i for start in starts for i in order[start : start + share]]
    if not augment:
        return images.subset(mine), preprocess
    side = input_side(preprocess)
    chosen = replace(images.subset(mine), change=Augment(side, preprocess, seed, epoch))
    return chosen, replace(preprocess, size=side, crop=None)


def _number(*parts: object) -> int:
    """A seed for these parts: equal for equal ones, unrelated otherwise."""
    return int.from_bytes(
        hashlib.sha256("\0".join(map(str, parts)).encode("utf8", "surrogateescape")).digest()[:7], "big"
    )
