"""The Weibull distribution of tails that are shifted far from 0, in logarithms."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SHIFT = 10_000.0  # where the least value of a tail is moved to, as in libMR
_STEPS = 200


def fit_weibull(tail: Tensor) -> tuple[Tensor, Tensor]:
    """The shape ``k`` and ``log(scale / 10000)`` of the Weibull distribution with location 0 that makes
    ``x = 10000 + tail`` most likely; ``tail`` starts at 0 and is not constant.

    With ``y = log(x / 10000)``, ``k`` solves ``sum e^(k y) y / sum e^(k y) - mean y = 1 / k``, whose left side rises
    and whose right side falls; ``scale = (mean x^k)^(1/k)``.
    """
    y = torch.log1p(tail.double() / SHIFT)
    span, mean = float(y.max()), y.mean()

    def above(shape: float) -> bool:
        return bool((torch.softmax(shape * y, 0) * y).sum() - mean > 1 / shape)

    low, high = 0.0, 1 / span
    while not above(high):
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if above(middle) else (middle, high)
    shape = torch.tensor((low + high) / 2, dtype=torch.float64)
    return shape, (torch.logsumexp(shape * y, 0) - math.log(len(y))) / shape
