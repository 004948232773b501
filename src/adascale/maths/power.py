"""Power transforms towards a normal distribution."""

from __future__ import annotations

import torch
from torch import Tensor

_ENDS = (-6.0, 8.0)
_STEPS = 60  # golden sections: the interval ends below 1e-11
_GOLDEN = (5**0.5 - 1) / 2


def yeo_johnson(x: Tensor, power: Tensor) -> Tensor:
    """Yeo & Johnson's transform (Biometrika 2000) of each column (N, K) with its power (K)."""
    grown = torch.log1p(x.clamp_min(0))
    shrunk = torch.log1p((-x).clamp_min(0))
    return torch.where(x >= 0, _raised(grown, power), -_raised(shrunk, 2 - power))


def _raised(logs: Tensor, power: Tensor) -> Tensor:
    """``((1 + x)^p - 1) / p`` from ``log(1 + x)``; its limit at ``p = 0``."""
    zero = power.abs() < 1e-12
    return torch.where(zero, logs, torch.expm1(power * logs) / torch.where(zero, 1.0, power))


def fit_yeo_johnson(x: Tensor) -> Tensor:
    """The power of each column that makes it most likely under a normal distribution, from -6 to 8."""
    low = x.new_full((x.shape[1],), _ENDS[0])
    high = x.new_full((x.shape[1],), _ENDS[1])
    weight = (x.sign() * torch.log1p(x.abs())).sum(0)
    for _ in range(_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        better = _likelihood(x, left, weight) > _likelihood(x, right, weight)
        low, high = torch.where(better, low, left), torch.where(better, right, high)
    return (low + high) / 2


def _likelihood(x: Tensor, power: Tensor, weight: Tensor) -> Tensor:
    variance = yeo_johnson(x, power).var(0, unbiased=False).clamp_min(1e-300)
    return -len(x) / 2 * variance.log() + (power - 1) * weight
