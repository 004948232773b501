"""One sort of values answers as a stable sort with indices does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from adascale.maths.activations import RankedRow, Ranking, first_ties, fixed_ratio
from adascale.maths.stats import descending, keep_count, ratio_of

ROWS = torch.tensor([[4.0, 2.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0], [-1.0, -2.0, -3.0, -4.0]])


def made(kind: str, rows: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(rows * size)
    if kind == "tied":
        return torch.randint(-2, 3, (rows, size), generator=generator).float()
    values = torch.randn(rows, size, generator=generator)
    return values.clamp_min(0) if kind == "relu" else values


@pytest.mark.parametrize("kind", ["relu", "signed", "tied"])
@pytest.mark.parametrize(("rows", "size"), [(1, 1), (1, 128), (7, 50), (64, 342)])
class TestAgainstTheStableSort:
    def test_strongest(self, kind: str, rows: int, size: int) -> None:
        values = made(kind, rows, size)
        order = descending(values)[1]
        for count in {1, max(1, size // 20), max(1, size // 2), size}:
            indices = Ranking(values).strongest(count) - size * np.arange(rows)[:, None]
            assert indices.tolist() == order[:, :count].sort().values.tolist()

    @pytest.mark.parametrize("relu", [True, False])
    def test_ratio(self, kind: str, rows: int, size: int, relu: bool) -> None:
        values = made(kind, rows, size)
        ranked = descending(values.clamp_min(0) if relu else values)[0].double()
        mass = ranked.cumsum(1)
        for percentile in (np.linspace(0, 100, rows), 37.5):
            keep = keep_count(size, percentile)
            expected = ratio_of(mass, mass[:, -1], torch.from_numpy(np.atleast_1d(keep)))
            assert Ranking(values).ratio(keep, relu) == pytest.approx(expected.numpy(), rel=1e-9)

    @pytest.mark.parametrize("relu", [True, False])
    def test_a_row_alone_is_as_in_a_batch(self, kind: str, rows: int, size: int, relu: bool) -> None:
        values, keep = made(kind, rows, size), keep_count(size, 85)
        alone = [RankedRow(row[None]) for row in values]
        expected = Ranking(values).ratio(keep, relu)
        assert [row.ratio(keep.item(), relu) for row in alone] == pytest.approx(expected, rel=1e-12)
        for count in {1, size // 3 + 1, size}:
            places = Ranking(values).strongest(count) - size * np.arange(rows)[:, None]
            assert [row.strongest(count).tolist() for row in alone] == places.tolist()


def test_ratio_by_hand() -> None:
    assert Ranking(ROWS).ratio(keep_count(4, 50)).tolist() == [8 / 6, 1, 1]
    assert Ranking(ROWS).ratio(np.array([1, 4, 2])).tolist() == [2, 1, 1]
    assert fixed_ratio(ROWS, 50).tolist() == [8 / 6, 1, 1]
    signed = torch.tensor([[3.0, -1.0, 1.0, -1.0]])
    assert fixed_ratio(signed, 75).tolist() == [4 / 3]
    assert fixed_ratio(signed, 75, relu=False).tolist() == [2 / 3]


def test_rows_that_are_not_contiguous() -> None:
    values = made("signed", 8, 6)
    assert (Ranking(values.T).strongest(2) == Ranking(values.T.contiguous()).strongest(2)).all()


def test_first_ties_for_arrays_and_tensors() -> None:
    above, tied = torch.tensor([[False, True, False, False]]), torch.tensor([[True, False, True, True]])
    assert first_ties(above, tied, 3).tolist() == [[True, True, True, False]]
    assert first_ties(above.numpy(), tied.numpy(), 3).tolist() == [[True, True, True, False]]
