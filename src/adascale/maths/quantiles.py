"""Exact quantiles of values that come in chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Asked = TypeVar("Asked")


def quantiles(chunks: Callable[[], Iterable[Tensor]], shares: Sequence[float]) -> list[float]:
    """The exact quantiles of all values in all chunks (linear interpolation), with memory for one chunk."""
    total = sum(chunk.numel() for chunk in chunks())
    steps = selected(total, any(chunk.dtype == torch.float64 for chunk in chunks()), shares, lambda digits: digits)
    counts = None
    while True:
        try:
            digits = steps.send(counts)
        except StopIteration as end:
            values: list[float] = end.value
            return values
        counts = digits.nothing()
        for chunk in chunks():
            counts += digits.counted(chunk)


@dataclass(frozen=True)
class Digits:
    """16 bits of the values' ordered bit patterns, ``shift`` bits from the end, for values that start with one of these
    prefixes. Counts of several chunks add up. wide: 64 bits in place of 32.
    """

    shift: int
    wide: bool
    prefixes: tuple[int, ...]

    @property
    def top(self) -> bool:
        """Whether these are the first bits, which have no prefix."""
        return self.shift == (48 if self.wide else 16)

    def nothing(self) -> Tensor:
        """The counts of no values."""
        return torch.zeros(len(self.prefixes), 1 << 16, dtype=torch.int64)

    def counted(self, values: Tensor) -> Tensor:
        """How often each digit follows each prefix (P, 65536)."""
        keys, counts = _ordered_bits(values, self.wide), self.nothing()
        for i, prefix in enumerate(self.prefixes):
            chosen = keys if self.top else keys[(keys >> (self.shift + 16)) == prefix]
            digits = (chosen >> self.shift) + (1 << 15) if self.top else (chosen >> self.shift) - (prefix << 16)
            counts[i] = torch.bincount(digits.long(), minlength=1 << 16)
        return counts


def selected(
    total: int, wide: bool, shares: Sequence[float], ask: Callable[[Digits], Asked]
) -> Generator[Asked, Tensor | None, list[float]]:
    """The exact quantiles of ``total`` values, from counts: it asks for digits, and is sent how often all values have
    them. wide: whether some values are float64. ask: makes of digits the question that is yielded.

    A radix selection, 16 bits in each sweep, from the top, for all requested ranks at once.
    """
    positions = [share * (total - 1) for share in shares]
    ranks = sorted({rank for position in positions for rank in (math.floor(position), math.ceil(position))})
    found = yield from _order_statistics(ranks, wide, ask)
    values = dict(zip(ranks, found, strict=True))
    low, high = ([values[rounded(position)] for position in positions] for rounded in (math.floor, math.ceil))
    weights = (position - math.floor(position) for position in positions)
    return [a + weight * (b - a) for a, b, weight in zip(low, high, weights, strict=True)]


def matrix_quantile(values: Tensor, share: float) -> float:
    """The exact quantile (linear interpolation) of a matrix that fits in memory; torch's own stops at 16 M entries."""
    return float(np.quantile(values.numpy(), share))


def _order_statistics(
    ranks: list[int], wide: bool, ask: Callable[[Digits], Asked]
) -> Generator[Asked, Tensor | None, list[float]]:
    """The values at these positions, counted from 0, of all values in order."""
    prefixes, left, bits = [0] * len(ranks), list(ranks), 64 if wide else 32
    for shift in range(bits - 16, -1, -16):
        digits = Digits(shift, wide, tuple(dict.fromkeys(prefixes)))
        counts = yield ask(digits)
        assert counts is not None
        for i, prefix in enumerate(prefixes):
            below = counts[digits.prefixes.index(prefix)].cumsum(0)
            digit = int(torch.searchsorted(below, torch.tensor(left[i]), right=True))
            left[i] -= int(below[digit - 1]) if digit else 0
            prefixes[i] = digit - (1 << 15) if digits.top else (prefix << 16) + digit
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
