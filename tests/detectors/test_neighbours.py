"""KNN on a large bank: FAISS narrows the search down, and the scores stay what they are, to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from adascale import Head, Outputs, detectors
from adascale.detectors import neighbours


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Small banks count as large; the sizes of what FAISS is asked."""
    pytest.importorskip("faiss")
    sizes: list[int] = []
    built = neighbours._built

    def counted(bank: torch.Tensor) -> Any:
        index = built(bank)

        class Counted:
            def search(self, unit: Any, length: int) -> Any:
                sizes.append(len(unit))
                return index.search(unit, length)

        return Counted()

    monkeypatch.setattr(neighbours, "_built", counted)
    monkeypatch.setattr(neighbours, "FEWEST_ROWS", 5000)
    monkeypatch.setattr(neighbours, "CALLS_BEFORE", 0)
    monkeypatch.setattr(neighbours, "MOST_SAMPLES", 16)
    return sizes


@pytest.mark.parametrize("k", [1, 50, 1000])
def test_faiss_gives_the_bits_of_our_search(k: int, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = torch.Generator().manual_seed(0)
    bank = torch.randn(6000, 24, generator=drawn)
    bank[100:200] = bank[0]  # equal rows, rows that differ in length alone, zero rows
    bank[200:300] = 3 * bank[1]
    bank[300:310] = 0
    test = torch.cat([torch.randn(9, 24, generator=drawn), bank[:3], bank[300:301], 1e-3 * bank[4:5]])
    head = Head(torch.randn(5, 24, generator=drawn))
    method = detectors.KNN(k=k).fit(Outputs(head(bank).float(), bank), head)
    outputs = Outputs(head(test).float(), test)
    with_faiss = method.score(outputs)
    assert asked == [14]
    monkeypatch.setattr(neighbours, "installed", lambda: False)
    assert torch.equal(method.score(outputs), with_faiss)
    assert asked == [14]


def test_large_batches_small_banks_and_little_memory_take_our_search(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, unit = torch.randn(6000, 4, generator=torch.Generator().manual_seed(0)), torch.eye(4)
    assert neighbours.nearest(unit.repeat(5, 1), bank, 3) is None
    assert neighbours.nearest(unit, bank[:4999], 3) is None
    assert neighbours.nearest(unit, bank, 3) is not None
    monkeypatch.setattr(neighbours, "memory_bytes", lambda: 1000)
    assert neighbours.nearest(unit, bank, 3) is None


def test_an_index_is_built_for_a_detector_that_is_asked_again_and_again(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "CALLS_BEFORE", 2)
    bank, unit = torch.randn(6000, 4, generator=torch.Generator().manual_seed(0)), torch.eye(4)[:1]
    assert [neighbours.nearest(unit, bank, 3) is not None for _ in range(4)] == [False, False, True, True]
    assert len(asked) == 2
