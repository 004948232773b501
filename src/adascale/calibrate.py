"""From scores to decisions: threshold and conformal p-value with a finite-sample guarantee, from ID images only."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import NamedTuple

import torch
from torch import Tensor

from adascale.errors import InputError


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of ID images that the method was not fitted on, and the false-alarm rate ``alpha`` asked for.

    ``p(s) = (1 + #{calibration >= s}) / (n + 1)``, and an image is flagged when ``p <= level``. For a fresh image from
    the same distribution as the calibration images the chance of that is at most ``level`` (Vovk et al., "Algorithmic
    learning in a random world"). ``level`` is ``alpha``, or ``1 / (n + 1)`` where n images cannot promise as little.
    """

    scores: Tensor
    alpha: float = 0.05

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if not len(self.scores):
            raise InputError("Calibration got no scores; at least one in-distribution image is needed.")
        object.__setattr__(self, "scores", self.scores.double().sort().values)

    @property
    def level(self) -> float:
        """The false-alarm rate that is guaranteed."""
        return max(self.alpha, 1 / (len(self.scores) + 1))

    @property
    def threshold(self) -> float:
        """``tau``: flagged is what scores above it. ``s > tau`` and ``p(s) <= level`` are the same statement."""
        n = len(self.scores)
        allowed = math.floor(self.level * (n + 1)) + 1
        while allowed / (n + 1) > self.level:  # the same division as in p_value: the two agree to the last bit
            allowed -= 1
        return float(self.scores[n - min(allowed, n)])

    def p_value(self, scores: Tensor) -> Tensor:
        n = len(self.scores)
        at_least = n - torch.searchsorted(self.scores, scores.double().contiguous(), right=False)
        return (1 + at_least).double() / (n + 1)

    def is_ood(self, scores: Tensor) -> Tensor:
        return scores > self.threshold

    def guarantee(self) -> str:
        """One sentence for people."""
        n, percent = len(self.scores), f"{100 * self.level:.3g} %"
        promise = f"At most {percent} of fresh in-distribution images are flagged ({n} calibration images)."
        if self.level == self.alpha:
            return promise
        return f"{promise} {100 * self.alpha:.3g} % needs at least {images_needed(self.alpha)} of them."


def images_needed(alpha: float) -> int:
    """The fewest calibration images that can promise ``alpha``: 19 for 5 %, 99 for 1 %."""
    check_alpha(alpha)
    return next(n for n in range(max(0, math.floor(1 / alpha) - 2), math.ceil(1 / alpha) + 2) if 1 / (n + 1) <= alpha)


def check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise InputError(f"alpha={alpha}; it is the share of ID images that may be flagged, above 0 and below 1.")


class Split(NamedTuple):
    """Indices of images: to choose parameters on, to fit on, to set the threshold. Disjoint; together all of them."""

    chosen: Tensor
    fitted: Tensor
    held_out: Tensor


def split(n: int, seed: int = 0, share: float = 0.2, choosing: int = 0) -> Split:
    """A random split, drawn with ``seed``: ``choosing`` images, then ``share`` of all to fit on, then the rest.

    At least 10 are fitted on (a few suffice for AdaSCALE), unless that is more than half.
    """
    order = torch.tensor(sorted(range(n), key=list(islice(draw(seed), n)).__getitem__), dtype=torch.int64)
    fitted = choosing + fitted_count(n, share)
    return Split(order[:choosing], order[choosing:fitted], order[fitted:])


def draw(seed: int) -> Iterator[float]:
    """A random number for each image, in order: the smallest are chosen first, however many images there will be."""
    generator = random.Random(seed)
    while True:
        yield generator.random()


def fitted_count(n: int, share: float) -> int:
    """How many of n images are fitted on: none for a share of 0."""
    return max(int(n * share), min(10, n // 2)) if share else 0


def total_needed(alpha: float, share: float) -> int:
    """The fewest images in all, fitted on and held out, that can promise ``alpha``."""
    return next(n for n in count(images_needed(alpha)) if n - fitted_count(n, share) >= images_needed(alpha))
