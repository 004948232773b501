"""Fair timing of alternatives, and the fixed-percentile scaling as its authors compute it, to compare with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head

_SHORTEST = 1e-3  # seconds; shorter measurements would be those of the clock


@dataclass(frozen=True, eq=False)
class Timing:
    """Seconds a call, turn by turn (T,)."""

    turns: Tensor

    @property
    def median(self) -> float:
        return float(self.turns.quantile(0.5))

    @property
    def spread(self) -> float:
        """Half the width of the middle half of the turns."""
        return float(self.turns.quantile(0.75) - self.turns.quantile(0.25)) / 2

    def over(self, other: Timing) -> Timing:
        """The ratio of two calls that took turns, turn by turn: what slows the machine down slows both."""
        return Timing(self.turns / other.turns)


def interleaved(calls: Mapping[str, Callable[[], object]], repeats: int = 21) -> dict[str, Timing]:
    """The time of each call. They take turns, so that whatever else the machine does meets all of them alike.

    A turn of a short call is as many calls as take about a millisecond, counted beforehand, which also warms up.
    """
    if repeats < 1:
        raise InputError(f"repeats={repeats}; at least 1 is needed.")
    counts = {name: _count(call) for name, call in calls.items()}
    seconds = torch.empty(len(calls), repeats, dtype=torch.float64)
    for turn in range(repeats):
        for row, (name, call) in enumerate(calls.items()):
            seconds[row, turn] = _seconds(call, counts[name]) / counts[name]
    return {name: Timing(row) for name, row in zip(calls, seconds, strict=True)}


def _count(call: Callable[[], object]) -> int:
    count = 1
    while _seconds(call, count) < _SHORTEST:
        count *= 2
    return count


def _seconds(call: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - began


def scale_of_authors(features: Tensor, percentile: float = 85) -> Tensor:
    """SCALE (Xu et al., 2024) step by step as its authors' code goes, in the dtype of the features (N, D):
    ``a exp(s1 / s2)``, ``s1`` the sum of a row, ``s2`` that of its copy with all but the k largest set to zero.
    """
    kept, size = features.clone(), features.shape[1]
    total = kept.sum(1)
    values, places = kept.topk(size - round(size * percentile / 100), dim=1)
    kept.zero_().scatter_(1, places, values)
    return features * (total / kept.sum(1)).exp()[:, None]


def scale_score_of_authors(features: Tensor, head: Head, percentile: float = 85) -> Tensor:
    """The score that follows, higher = more OOD: ``S = -logsumexp(W (a exp(r)) + b)``."""
    scaled = scale_of_authors(features, percentile)
    return -F.linear(scaled, head.weight, head.bias).logsumexp(1)
