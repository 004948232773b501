"""The images of a training epoch: their order and augmentation, as pure functions of seed, epoch and image."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image, ImageOps

from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet

_SMALL = 64
_AREA, _ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)


@dataclass(frozen=True)
class Augment:
    """The standard augmentation of one epoch. Its images have exactly the size ``side`` (height, width).

    Up to 64 pixels: a black margin of an eighth of the side (4 of 32), a random crop and a random mirror. Above: a
    crop of 8 to 100 % of the area with an aspect from 3/4 to 4/3, resized, and a random mirror (Szegedy et al., 2015).
    """

    side: tuple[int, int]
    preprocess: Preprocess
    seed: int = 0
    epoch: int = 0

    def __call__(self, image: Image.Image, name: str) -> Image.Image:
        generator = np.random.default_rng(_seed_of(self.seed, self.epoch, name))
        crop = self._shifted if max(self.side) <= _SMALL else self._zoomed
        image = crop(self.preprocess.coloured(image), generator)
        return ImageOps.mirror(image) if generator.random() < 0.5 else image

    def _shifted(self, image: Image.Image, generator: np.random.Generator) -> Image.Image:
        height, width = self.side
        image = image if image.size == (width, height) else image.resize((width, height), self.preprocess.filter)
        down, right = height // 8, width // 8
        image = ImageOps.expand(image, (right, down, right, down))
        left, top = (int(generator.integers(2 * margin + 1)) for margin in (right, down))
        return image.crop((left, top, left + width, top + height))

    def _zoomed(self, image: Image.Image, generator: np.random.Generator) -> Image.Image:
        full = image.width * image.height
        height, width = self.side
        box = (0, 0, image.width, image.height)
        for _ in range(10):
            area = full * generator.uniform(*_AREA)
            aspect = math.exp(generator.uniform(math.log(_ASPECT[0]), math.log(_ASPECT[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= image.width and 0 < h <= image.height:
                left, top = (int(generator.integers(n + 1)) for n in (image.width - w, image.height - h))
                box = (left, top, left + w, top + h)
                break
        return image.resize((width, height), self.preprocess.filter, box)


def epoch_images(
    images: ImageSet,
    preprocess: Preprocess,
    seed: int,
    epoch: int,
    batch_size: int,
    part: tuple[int, int] = (0, 1),
    augment: bool = True,
) -> tuple[ImageSet, Preprocess]:
    """The images in the order of the epoch, with its augmentation, and the preprocessing that is left to do.

    An incomplete batch is left out, unless it is the only one. part: (i, n) takes the i-th of n equal parts of each
    batch.
    """
    generator = torch.Generator().manual_seed(_seed_of(seed, epoch, "order"))
    order = torch.randperm(len(images), generator=generator).tolist()
    batch_size = min(batch_size, len(order))
    share = batch_size // part[1]
    starts = range(part[0] * share, len(order) // batch_size * batch_size, batch_size)
    chosen = images.subset([i for start in starts for i in order[start : start + share]])
    if not augment:
        return chosen, preprocess
    side = preprocess.side
    return replace(chosen, change=Augment(side, preprocess, seed, epoch)), replace(preprocess, size=side, crop=None)


def _seed_of(*parts: object) -> int:
    """A seed that depends on all these parts."""
    text = "\0".join(map(str, parts)).encode("utf8", "surrogateescape")
    return int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
