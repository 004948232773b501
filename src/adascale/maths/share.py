"""How many of recent images are out-of-distribution, from scores alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from adascale.maths.binomial import beta_quantile

LEVELS = (0.5, 0.8, 0.9, 0.95)
CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / (4 * len(LEVELS))  # each of two shares at each level can be wrong to either side

_ERROR = 1e-6  # of an end of an interval


class Share(NamedTuple):
    """An estimate with its interval. level: the quantile of the calibration scores that it was read at."""

    estimate: float
    low: float
    high: float
    level: float


class ShareEstimate:
    """The share of OOD images among some scores, against calibration scores.

    Let ``F0`` and ``F1`` be the shares of ID images and of recent images that score at most ``tau``. Whatever the OOD
    images are, their share is at least ``1 - F1 / F0``, and exactly that if all of them score above ``tau``. The
    thresholds are four quantiles of the calibration scores; the one with the highest lower end counts. All ends hold
    together with 95 % confidence for independent images (Clopper and Pearson; Bonferroni over the quantiles).

    For example:

        >>> share = ShareEstimate(np.arange(1000.0)).of(np.full(50, 2000.0))  # all score above the calibration images
        >>> share.estimate, share.low > 0.8
        (1.0, True)
    """

    def __init__(self, calibration: np.ndarray) -> None:
        n, ordered = len(calibration), np.sort(calibration)
        self._levels = np.empty((len(LEVELS), 4))  # tau, F0 and its ends
        for row, level in zip(self._levels, LEVELS, strict=True):
            k = min(n, max(1, round(level * (n + 1))))
            tau = ordered[k - 1]
            most = int((ordered <= tau).sum())
            row[:] = tau, most / n, _low(k, n), _high(most, n)

    def of(self, scores: np.ndarray) -> Share | None:
        """The share among these scores; None if there are none."""
        if not len(scores):
            return None
        found = [self._at(place, scores) for place in range(len(LEVELS))]
        return max(found, key=lambda share: (share.low, share.level))

    def _at(self, place: int, scores: np.ndarray) -> Share:
        tau, known, known_low, known_high = self._levels[place].tolist()
        m, below = len(scores), int((scores <= tau).sum())
        ends = 1 - _high(below, m) / known_low, 1 - _low(below, m) / known_high
        low, middle, high = (min(1.0, max(0.0, end)) for end in (ends[0], 1 - below / m / known, ends[1]))
        return Share(middle, low, high, LEVELS[place])

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs to go on from here."""
        return {"levels": self._levels}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a `state`."""
        self._levels = state["levels"]


@lru_cache(maxsize=1024)
def _low(k: int, n: int) -> float:
    return beta_quantile(_TAIL, k, n + 1 - k, _ERROR) if k else 0.0


@lru_cache(maxsize=1024)
def _high(k: int, n: int) -> float:
    return beta_quantile(1 - _TAIL, k + 1, n - k, _ERROR) if k < n else 1.0
