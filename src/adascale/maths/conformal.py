"""From scores to decisions: threshold and conformal p-value with a finite-sample guarantee, from ID images only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.maths.promise import (
    RANGE_SHARE,
    allowed,
    check_alpha,
    check_confidence,
    images_needed,
    in_words,
    percent,
    promised,
    rate_range,
)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of ID images that the method was not fitted on, and what is to be promised about false alarms.

    ``p(s) = (1 + #{calibration >= s}) / (n + 1)``, and an image is flagged when ``p <= level``.

    Without a ``confidence``, ``level`` is ``alpha``. For a fresh image from the same distribution as the calibration
    images the chance of being flagged is at most ``level``, on average over draws of the calibration images (Vovk et
    al., "Algorithmic learning in a random world").

    With a ``confidence``, ``level`` is the largest ``k / (n + 1)`` with ``P(Binomial(n, alpha) <= k - 1) <= 1 -
    confidence``: for all but the share ``1 - confidence`` of such draws, at most ``alpha`` of fresh images are flagged
    (Vovk, "Conditional validity of inductive conformal predictors", 2012).

    Where n images are too few for ``alpha``, ``level`` is ``1 / (n + 1)``, and ``promised`` says what holds instead.

    For example:

        >>> calibration = Calibration(torch.arange(1.0, 20.0), alpha=0.05)
        >>> calibration.p_value(torch.tensor([0.0, 18.5, 30.0])).tolist()
        [1.0, 0.1, 0.05]
        >>> calibration.is_ood(torch.tensor([0.0, 18.5, 30.0])).tolist()
        [False, False, True]
    """

    scores: Tensor
    alpha: float = 0.05
    confidence: float | None = None

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_confidence(self.confidence)
        if not len(self.scores):
            raise InputError("Calibration got no scores; at least one in-distribution image is needed.")
        object.__setattr__(self, "scores", self.scores.double().sort().values)

    @property
    def promised(self) -> float:
        """The false-alarm rate that is guaranteed: ``alpha``, or the lowest that so few images can promise."""
        return promised(len(self.scores), self.alpha, self.confidence)

    @property
    def level(self) -> float:
        """Images with a p-value of at most this are flagged."""
        n = len(self.scores)
        return self.promised if self.confidence is None else self._allowed / (n + 1)

    @property
    def threshold(self) -> float:
        """``tau``: images that score above it are flagged. ``s > tau`` and ``p(s) <= level`` are the same statement."""
        return float(self.scores[len(self.scores) - self._allowed])

    @property
    def rate_range(self) -> tuple[float, float]:
        """Where the false-alarm rates of 90 % of detectors with so many calibration images lie: exact for every
        continuous distribution of scores. If the threshold is tied, the rate may be lower, and the range begins at 0.
        """
        low, high = rate_range(len(self.scores), self._allowed)
        return (0.0 if self._tied else low), high

    def p_value(self, scores: Tensor) -> Tensor:
        """``(1 + number of calibration scores at least as high) / (n + 1)`` for each score."""
        n = len(self.scores)
        at_least = n - torch.searchsorted(self.scores, scores.double().contiguous(), right=False)
        return (1 + at_least).double() / (n + 1)

    def is_ood(self, scores: Tensor) -> Tensor:
        """Whether each score is above the threshold."""
        return scores > self.threshold

    def guarantee(self) -> str:
        """The promise, and what it means for one detector."""
        n, (low, high) = len(self.scores), self.rate_range
        sure = " on average" if self.confidence is None else f", with {100 * self.confidence:.4g} % confidence"
        share = RANGE_SHARE if low else (1 + RANGE_SHARE) / 2  # with ties only the upper end is known
        rates = f"{percent(low)} to {percent(high)} %" if low else f"at most {percent(high)} %"
        text = (
            f"At most {in_words(self.promised)} of fresh in-distribution images are flagged{sure}; "
            f"{100 * share:.3g} % of detectors with {n} calibration image{'s' * (n > 1)} flag {rates}."
        )
        if self.promised > self.alpha:
            needed = images_needed(self.alpha, self.confidence)
            text += f" {in_words(self.alpha)} needs at least {needed} calibration images."
        return text

    @property
    def _allowed(self) -> int:
        return allowed(len(self.scores), self.alpha, self.confidence)

    @property
    def _tied(self) -> bool:
        return int((self.scores == self.threshold).sum()) > 1
