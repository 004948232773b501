"""Timing in turns."""

from __future__ import annotations

import pytest
import torch

from adascale import InputError
from adascale.core import timing


def test_calls_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, order = [0.0], list[str]()

    def work(name: str, seconds: float) -> None:
        order.append(name)
        clock[0] += seconds

    monkeypatch.setattr("adascale.core.timing.time.perf_counter", lambda: clock[0])
    calls = {"a": lambda: work("a", 1.0), "b": lambda: work("b", 2.5)}
    found = timing.interleaved(calls, repeats=3)
    assert order == [*"ab", *"ababab"]  # each once to warm up
    assert [found[name].median for name in "ab"] == [1.0, 2.5]
    assert found["b"].over(found["a"]).median == 2.5
    assert found["b"].spread == 0
    with pytest.raises(InputError, match="at least 1"):
        timing.interleaved(calls, repeats=0)


def test_short_calls_are_repeated_within_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], [0]

    def quick() -> None:
        calls[0] += 1
        clock[0] += 3e-4

    monkeypatch.setattr("adascale.core.timing.time.perf_counter", lambda: clock[0])
    assert timing.interleaved({"quick": quick}, repeats=2)["quick"].median == pytest.approx(3e-4)
    assert calls[0] == (1 + 2 + 4) + 2 * 4


def test_ratios_are_taken_turn_by_turn() -> None:
    """A machine that slows down tenfold half way slows both: the ratio does not move."""
    one = timing.Timing(torch.tensor([1.0, 1.0, 10.0, 10.0], dtype=torch.float64))
    other = timing.Timing(2 * one.turns)
    assert one.spread > 4
    assert (other.over(one).median, other.over(one).spread) == (2, 0)
