"""The seeded split of in-distribution images into parts for choosing, fitting and calibration."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

import torch
from torch import Tensor

from adascale.maths.promise import images_needed


class Split(NamedTuple):
    """Indices of images: to choose parameters on, to fit on, to set the threshold. Disjoint; together all of them."""

    chosen: Tensor
    fitted: Tensor
    held_out: Tensor


def split(n: int, seed: int = 0, share: float = 0.2, choosing: int = 0) -> Split:
    """A random split, drawn with ``seed``: ``choosing`` images, then ``share`` of all to fit on, then the rest.

    At least 10 images are fitted on (a few suffice for AdaSCALE), unless that is more than half of them.
    """
    order = torch.tensor(sorted(range(n), key=list(islice(draw(seed), n)).__getitem__), dtype=torch.int64)
    fitted = choosing + fitted_count(n, share)
    return Split(order[:choosing], order[choosing:fitted], order[fitted:])


def draw(seed: int) -> Iterator[float]:
    """A random number for each image, in order. The images with the smallest numbers are chosen first, so the choice
    does not need to know how many images will come.
    """
    generator = random.Random(seed)
    while True:
        yield generator.random()


def fitted_count(n: int, share: float) -> int:
    """How many of n images the method is fitted on: none for a share of 0."""
    return max(int(n * share), min(10, n // 2)) if share else 0


def total_needed(alpha: float, share: float, confidence: float | None = None) -> int:
    """The fewest images, fitted on and held out together, that can guarantee ``alpha``."""
    least = images_needed(alpha, confidence)
    return next(n for n in count(least) if n - fitted_count(n, share) >= least)
