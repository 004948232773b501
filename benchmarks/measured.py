"""One line of the table of ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from adascale.core.timing import Timing


@dataclass(frozen=True)
class Ratio:
    """How much longer one thing takes than another, measured in turns: median, least and largest of the turns.

    part: the letter of the section. most: what it should not exceed, where something is promised.
    """

    part: str
    what: str
    case: str
    median: float
    least: float
    largest: float
    turns: int
    most: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool | None:
        return None if self.most is None else self.median <= self.most


def ratio(part: str, what: str, case: str, timing: Timing, most: float | None = None, note: str = "") -> Ratio:
    """From the turn-by-turn ratios of two timings."""
    turns = timing.turns
    return Ratio(part, what, case, timing.median, float(turns.min()), float(turns.max()), len(turns), most, note)


def of_seconds(seconds: Sequence[float], others: Sequence[float]) -> Timing:
    """The ratios of two things timed in turns by hand."""
    return Timing(torch.tensor(seconds, dtype=torch.float64) / torch.tensor(others, dtype=torch.float64))


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
