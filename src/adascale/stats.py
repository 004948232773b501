"""The arithmetic shared by the methods. Pure functions on tensors; sums and scores are float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
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
    return max(1, share_count(features, percent / 100))


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


def scaled_activation_logits(logits: Tensor, bias: Tensor, ratio: Tensor) -> Tensor:
    """``W (a e^r) + b`` without the head: ``e^r`` is one number a row, so it equals ``e^r (z - b) + b``."""
    factor = ratio.double().clamp(max=_LARGEST_EXPONENT).exp()[:, None]
    return factor * (logits.double() - bias) + bias


def generalised_entropy(logits: Tensor, gamma: float = 0.1, top: int = 100) -> Tensor:
    """``sum over the M most probable classes of p^gamma (1 - p)^gamma`` per row; ``1 - p`` without cancellation."""
    log_p = logits.double().log_softmax(1)
    rest = torch.log(-torch.expm1(log_p.clamp(max=-1e-300)))
    terms = gamma * (log_p + torch.where(log_p < 0, rest, -math.inf))
    order = log_p.topk(min(top, log_p.shape[1]), dim=1).indices
    return terms.gather(1, order).exp().sum(1)


def quantile(chunks: Callable[[], Iterable[Tensor]], share: float) -> float:
    """The exact quantile of all values in all chunks (linear interpolation), in memory for one chunk.

    Counts digits of the values' ordered bit patterns, 16 bits a pass, from the top: a radix selection.
    """
    total = sum(chunk.numel() for chunk in chunks())
    position = share * (total - 1)
    low = math.floor(position)
    first = _order_statistic(chunks, low)
    if position == low:
        return first
    return first + (position - low) * (_order_statistic(chunks, low + 1) - first)


def matrix_quantile(values: Tensor, share: float) -> float:
    """The exact quantile (linear interpolation) of a matrix that fits in memory; torch's own stops at 16 M entries."""
    return float(np.quantile(values.numpy(), share))


def _order_statistic(chunks: Callable[[], Iterable[Tensor]], rank: int) -> float:
    """The value with ``rank`` smaller-or-equal ones before it, in sorted order."""
    prefix, shift = 0, 48
    for shift in (48, 32, 16, 0):
        counts = torch.zeros(1 << 16, dtype=torch.int64)
        for chunk in chunks():
            keys = _ordered_bits(chunk)
            if shift < 48:
                keys = keys[(keys >> (shift + 16)) == prefix]
            digits = (keys >> shift) - (prefix << 16) if shift < 48 else (keys >> 48) + (1 << 15)
            counts += torch.bincount(digits, minlength=1 << 16)
        below = counts.cumsum(0)
        digit = int(torch.searchsorted(below, torch.tensor(rank), right=True))
        rank -= int(below[digit - 1]) if digit else 0
        prefix = digit - (1 << 15) if shift == 48 else (prefix << 16) + digit
    bits = torch.tensor(prefix)
    return float((bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)).view(torch.float64))


def _ordered_bits(values: Tensor) -> Tensor:
    """int64 patterns of float64 that sort like the values."""
    bits = values.double().flatten().view(torch.int64)
    return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)


def row_norms(values: Tensor) -> Tensor:
    """The Euclidean length of each row."""
    lengths: Tensor = torch.linalg.vector_norm(values, dim=1)
    return lengths


def unit_rows(values: Tensor) -> Tensor:
    """Each row over its length, float64; an all-zero row stays zero."""
    values = values.double()
    return values / row_norms(values)[:, None].clamp_min(1e-300)
