"""Exact quantiles of values that come in chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor


def quantiles(chunks: Callable[[], Iterable[Tensor]], shares: Sequence[float]) -> list[float]:
    """The exact quantiles of all values in all chunks (linear interpolation), with memory for one chunk.

    A radix selection: counts digits of the values' ordered bit patterns, 16 bits in each sweep, from the top, for all
    requested ranks at once.
    """
    total = sum(chunk.numel() for chunk in chunks())
    positions = [share * (total - 1) for share in shares]
    ranks = sorted({rank for position in positions for rank in (math.floor(position), math.ceil(position))})
    values = dict(zip(ranks, _order_statistics(chunks, ranks), strict=True))
    low, high = ([values[rounded(position)] for position in positions] for rounded in (math.floor, math.ceil))
    weights = (position - math.floor(position) for position in positions)
    return [a + weight * (b - a) for a, b, weight in zip(low, high, weights, strict=True)]


def matrix_quantile(values: Tensor, share: float) -> float:
    """The exact quantile (linear interpolation) of a matrix that fits in memory; torch's own stops at 16 M entries."""
    return float(np.quantile(values.numpy(), share))


def _order_statistics(chunks: Callable[[], Iterable[Tensor]], ranks: list[int]) -> list[float]:
    """The values at these positions, counted from 0, of all values in order."""
    wide = any(chunk.dtype == torch.float64 for chunk in chunks())
    bits = 64 if wide else 32
    prefixes, left = [0] * len(ranks), list(ranks)
    for shift in range(bits - 16, -1, -16):
        top = shift == bits - 16
        counts = {prefix: torch.zeros(1 << 16, dtype=torch.int64) for prefix in prefixes}
        for chunk in chunks():
            keys = _ordered_bits(chunk, wide)
            for prefix, count in counts.items():
                chosen = keys if top else keys[(keys >> (shift + 16)) == prefix]
                digits = (chosen >> shift) + (1 << 15) if top else (chosen >> shift) - (prefix << 16)
                count += torch.bincount(digits.long(), minlength=1 << 16)
        for i, prefix in enumerate(prefixes):
            below = counts[prefix].cumsum(0)
            digit = int(torch.searchsorted(below, torch.tensor(left[i]), right=True))
            left[i] -= int(below[digit - 1]) if digit else 0
            prefixes[i] = digit - (1 << 15) if top else (prefix << 16) + digit
    return [_from_ordered_bits(prefix, wide) for prefix in prefixes]


def _ordered_bits(values: Tensor, wide: bool) -> Tensor:
    """Whole numbers that sort like the values: their bits, with those of negative values inverted."""
    values = values.flatten().to(torch.float64 if wide else torch.float32)
    return _inverted_below_zero(values.view(torch.int64 if wide else torch.int32))


def _from_ordered_bits(key: int, wide: bool) -> float:
    bits = _inverted_below_zero(torch.tensor(key, dtype=torch.int64 if wide else torch.int32))
    return float(bits.view(torch.float64 if wide else torch.float32))


def _inverted_below_zero(bits: Tensor) -> Tensor:
    """The bits, but for the sign, inverted where it is set; doing so twice changes nothing."""
    last = torch.iinfo(bits.dtype).bits - 1
    return bits ^ ((bits >> last) & torch.iinfo(bits.dtype).max)
