"""Fair timing of alternatives."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.errors import InputError

_SHORTEST = 1e-3  # seconds; the clock is too coarse for shorter measurements


@dataclass(frozen=True, eq=False)
class Timing:
    """Seconds per call, one value for each turn (T,)."""

    turns: Tensor

    @property
    def median(self) -> float:
        """The median over the turns."""
        return float(self.turns.quantile(0.5))

    @property
    def spread(self) -> float:
        """Half the width of the middle half of the turns."""
        return float(self.turns.quantile(0.75) - self.turns.quantile(0.25)) / 2

    def over(self, other: Timing) -> Timing:
        """The ratio of two calls that took turns, turn by turn: a slow moment of the machine slows both."""
        return Timing(self.turns / other.turns)


def interleaved(
    calls: Mapping[str, Callable[[], object]], repeats: int = 21, clock: Callable[[], float] | None = None
) -> dict[str, Timing]:
    """The time of each call. The calls take turns, so that other work on the machine slows all of them alike.

    A turn of a short call repeats it for about a millisecond. The number of repeats is found beforehand, which also
    warms the call up. clock: by default `time.perf_counter`; `time.process_time` counts the processor's time alone, for
    calls that use one thread.

    For example:

        >>> found = interleaved({"short": lambda: sum(range(10)), "long": lambda: sum(range(10_000))}, repeats=5)
        >>> sorted(found), len(found["long"].turns)
        (['long', 'short'], 5)
    """
    if repeats < 1:
        raise InputError(f"repeats={repeats}; at least 1 is needed.")
    clock = clock or time.perf_counter
    counts = {name: _count(call, clock) for name, call in calls.items()}
    seconds = torch.empty(len(calls), repeats, dtype=torch.float64)
    for turn in range(repeats):
        for row, (name, call) in enumerate(calls.items()):
            seconds[row, turn] = _seconds(call, counts[name], clock) / counts[name]
    return {name: Timing(row) for name, row in zip(calls, seconds, strict=True)}


def _count(call: Callable[[], object], clock: Callable[[], float]) -> int:
    count = 1
    while _seconds(call, count, clock) < _SHORTEST:
        count *= 2
    return count


def _seconds(call: Callable[[], object], count: int, clock: Callable[[], float]) -> float:
    began = clock()
    for _ in range(count):
        call()
    return clock() - began
