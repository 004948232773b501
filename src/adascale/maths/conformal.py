"""From scores to decisions: threshold and conformal p-value with a finite-sample guarantee, from ID images only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.errors import InputError


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of ID images that the method was not fitted on, and the requested false-alarm rate ``alpha``.

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
        """``tau``: images that score above it are flagged. ``s > tau`` and ``p(s) <= level`` are the same statement."""
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
        """The guarantee in one sentence."""
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
