"""Binomial probabilities and quantiles of the beta distribution, in plain Python and to about 1e-13."""

from __future__ import annotations

import math
from collections.abc import Iterator

# Terms this far below the largest one do not change the sum.
_NEGLIGIBLE = 1e-25


def at_most(k: int, n: int, p: float) -> float:
    """``P(Binomial(n, p) <= k)`` for 0 < p < 1.

    The terms follow from the largest one by the ratios of neighbours, and their sum is 1. So no factorial and no
    logarithm is needed, and the error stays near that of a single division.
    """
    mode = min(n, int((n + 1) * p))
    upper, lower = list(_upwards(mode, n, p)), list(_downwards(mode, n, p))  # lower begins one below the mode
    total = math.fsum(upper) + math.fsum(lower)
    if k >= mode:
        return 1.0 - math.fsum(upper[k - mode + 1 :]) / total
    return math.fsum(lower[mode - 1 - k :]) / total if k >= 0 else 0.0


def beta_quantile(q: float, a: int, b: int, error: float = 1e-15) -> float:
    """The q-quantile of Beta(a, b) for whole numbers: ``P(Beta(a, b) <= x) = P(Binomial(a + b - 1, x) >= a)``."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high and high - low > error:
        if 1 - at_most(a - 1, a + b - 1, middle) < q:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _upwards(mode: int, n: int, p: float) -> Iterator[float]:
    """The terms from the mode on, relative to it."""
    term, odds = 1.0, p / (1 - p)
    for j in range(mode, n + 1):
        if term < _NEGLIGIBLE:
            return
        yield term
        term *= (n - j) / (j + 1) * odds


def _downwards(mode: int, n: int, p: float) -> Iterator[float]:
    """The terms below the mode, relative to it, the nearest first."""
    term, odds = 1.0, (1 - p) / p
    for j in range(mode, 0, -1):
        term *= j / (n - j + 1) * odds
        if term < _NEGLIGIBLE:
            return
        yield term


def share_interval(count: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """Where the share lies of which ``count`` of ``total`` independent cases are a sample, with this confidence.

    Exact: the interval holds at least as often as it says (Clopper and Pearson, 1934).
    """
    outside = (1 - level) / 2
    low = beta_quantile(outside, count, total - count + 1, 1e-12) if count else 0.0
    high = beta_quantile(1 - outside, count + 1, total - count, 1e-12) if count < total else 1.0
    return low, high
