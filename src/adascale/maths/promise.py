"""What n calibration images can promise about false alarms: counts and rates, without scores and without PyTorch.

An image is flagged if fewer than k calibration images score at least as high. The share of fresh in-distribution images
that a detector flags then follows Beta(k, n + 1 - k) over draws of the calibration images, whatever the distribution of
the scores is (without ties; with ties it is at most that). Its mean is k / (n + 1).
"""

from __future__ import annotations

import math
from functools import lru_cache
from numbers import Real

from adascale.core.errors import InputError
from adascale.maths.binomial import at_most, beta_quantile

RANGE_SHARE = 0.9  # of the detectors that have their false-alarm rate in the range that is printed
_ROUNDING = 1 + 1e-12  # a promise that holds exactly must not be lost by rounding


def check_alpha(alpha: float) -> None:
    if not (_is_number(alpha) and 0 < alpha < 1):
        raise InputError(
            f"alpha={alpha!r}; it is the share of ID images that may be flagged, a number above 0 and below 1."
        )


def check_confidence(confidence: float | None) -> None:
    if confidence is not None and not (_is_number(confidence) and 0.5 <= confidence < 1):
        raise InputError(
            f"confidence={confidence!r}; it is how sure the promise is, a number from 0.5 to below 1, for example 0.95."
        )


def check_fdr(fdr: float) -> None:
    if not (_is_number(fdr) and 0 < fdr < 1):
        raise InputError(
            f"fdr={fdr!r}; it is the share of discoveries that may be false, a number above 0 and below 1."
        )


def _is_number(value: object) -> bool:
    """Whether this is one real number, be it Python's or NumPy's; texts such as "0.05" and arrays are not."""
    return isinstance(value, Real)


@lru_cache(maxsize=1024)
def allowed(n: int, alpha: float, confidence: float | None = None) -> int:
    """k: the largest count with which n images keep the promise; 1 if no count does.

    On average: the largest k with ``k / (n + 1) <= alpha``. With confidence: the largest k with
    ``P(Binomial(n, alpha) <= k - 1) <= 1 - confidence``, the chance that ``Beta(k, n + 1 - k)`` exceeds alpha.
    """
    if confidence is not None:
        return max(1, _confident(n, alpha, confidence))
    level = max(alpha, 1 / (n + 1))
    count = math.floor(level * (n + 1)) + 1
    while count / (n + 1) > level:  # the same division as in the p-value: the two agree to the last bit
        count -= 1
    return min(count, n)


def _confident(n: int, alpha: float, confidence: float) -> int:
    """The largest k as above, by bisection; 0 if there is none."""
    low, high = 0, n + 1  # low keeps the promise, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if at_most(middle - 1, n, alpha) <= (1 - confidence) * _ROUNDING:
            low = middle
        else:
            high = middle
    return low


def least_alphas(n: int, confidence: float | None = None) -> list[float]:
    """The least ``alpha`` for which `allowed` is at least k, for k = 1, 2, ..., n.

    On average it is ``k / (n + 1)``; with confidence the quantile of ``Beta(k, n + 1 - k)`` at that confidence.
    """
    if confidence is None:
        return [k / (n + 1) for k in range(1, n + 1)]
    return [beta_quantile(confidence, k, n + 1 - k) for k in range(1, n + 1)]


def promised(n: int, alpha: float, confidence: float | None = None) -> float:
    """``alpha``, or the lowest rate that n images can promise: 1 / (n + 1), with confidence ``1 - (1 - c)^(1 / n)``.

    For example:

        >>> promised(100, 0.05), promised(9, 0.05)
        (0.05, 0.1)
    """
    if n >= images_needed(alpha, confidence):
        return alpha
    return 1 / (n + 1) if confidence is None else -math.expm1(math.log1p(-confidence) / n)


@lru_cache(maxsize=1024)
def images_needed(alpha: float, confidence: float | None = None) -> int:
    """The fewest calibration images that can promise ``alpha``: 19 for 5 %, 59 for 5 % with 95 % confidence.

    For example:

        >>> images_needed(0.05), images_needed(0.05, confidence=0.95)
        (19, 59)
    """
    check_alpha(alpha)
    check_confidence(confidence)
    if confidence is None:
        about = math.floor(1 / alpha)
        return next(n for n in range(max(0, about - 2), about + 3) if 1 / (n + 1) <= alpha)
    about = math.floor(math.log1p(-confidence) / math.log1p(-alpha))
    return next(n for n in range(max(1, about - 2), about + 3) if _confident(n, alpha, confidence))


def rate_range(n: int, count: int) -> tuple[float, float]:
    """The range with the false-alarm rates of 90 % of detectors: from the 5 % to the 95 % quantile of Beta(k, n+1-k).

    The m-th smallest of n calibration scores is the threshold for m = n + 1 - k, so this is Beta(n - m + 1, m).
    """
    outside = (1 - RANGE_SHARE) / 2
    return _quantile(outside, count, n), _quantile(1 - outside, count, n)


@lru_cache(maxsize=1024)
def _quantile(q: float, count: int, n: int) -> float:
    return beta_quantile(q, count, n + 1 - count)


def in_words(alpha: float, confidence: float | None = None) -> str:
    """``5 %``, or ``5 % with 95 % confidence``."""
    return f"{100 * alpha:.3g} %" + ("" if confidence is None else f" with {100 * confidence:.4g} % confidence")


def percent(share: float) -> str:
    """A share that was computed, in percent: 2.2, 13.9, 0.026."""
    value = 100 * share
    return f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"
