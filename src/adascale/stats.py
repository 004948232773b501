"""The arithmetic shared by the methods. Pure functions on tensors; sums and scores are float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# exp(500) is about 1e217: far beyond any real score, and still finite after multiplication with logits.
_LARGEST_EXPONENT = 500.0


def energy(logits: Tensor) -> Tensor:
    """``E(z) = log sum_c exp(z_c)`` per row (Liu et al., 2020, "Energy-based out-of-distribution detection")."""
    return torch.logsumexp(logits.double(), dim=1)


def share_count(total: int, share: float) -> int:
    """``floor(total * share)``; an exact product that floating point puts a hair below an integer counts as it."""
    return math.floor(total * share + 1e-9)


def top_count(features: int, percent: float) -> int:
    """How many entries ``percent`` % of ``features`` are: ``max(1, floor(D * k / 100))``."""
    return max(1, math.floor(features * percent / 100))


def keep_count(features: int, percentile: Tensor) -> Tensor:
    """Entries above a percentile: ``D - round(D * p / 100)``, half to even, never fewer than 1."""
    return (features - torch.round(features * percentile.double() / 100)).long().clamp_min(1)


def ecdf(reference: Tensor, values: Tensor) -> Tensor:
    """``F(q) = #{reference <= q} / n`` for a *sorted* reference (right-continuous)."""
    return torch.searchsorted(reference, values.contiguous(), right=True).double() / len(reference)


def descending(activations: Tensor) -> tuple[Tensor, Tensor]:
    """Each row from large to small, with indices; equal values keep the lower index first."""
    values, order = torch.sort(activations, dim=1, descending=True, stable=True)
    return values, order


def mass_ratio(ranked: Tensor, percentile: Tensor) -> Tensor:
    """``r = (sum of a row) / (sum of its k largest)``, k from the percentile (one for all rows, or one a row).

    ``ranked`` is sorted from large to small. A row without a positive entry has ``r = 1``.
    """
    mass = ranked.double().cumsum(1)
    keep = keep_count(ranked.shape[1], percentile).expand(len(ranked))
    kept = mass.gather(1, keep[:, None] - 1).squeeze(1)
    usable = (ranked[:, 0] > 0) & (kept != 0)
    return torch.where(usable, mass[:, -1] / torch.where(usable, kept, 1.0), 1.0)


def scaled_activation_energy(logits: Tensor, bias: Tensor, ratio: Tensor) -> Tensor:
    """``E(W (a e^r) + b)`` without the head: ``e^r`` is one number a row, so it equals ``E(e^r (z - b) + b)``."""
    factor = ratio.double().clamp(max=_LARGEST_EXPONENT).exp()[:, None]
    return energy(factor * (logits.double() - bias) + bias)


def scaled_logit_energy(logits: Tensor, ratio: Tensor) -> Tensor:
    """``E(z r^2)``."""
    return energy(logits.double() * ratio.double().square()[:, None])
