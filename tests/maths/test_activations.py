"""Sorted activations, counts, the ratio, the eCDF and the energy, by hand and against a stable sort with indices."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from adascale import Head, Outputs, View, detectors
from adascale.maths.activations import (
    RankedRow,
    Ranking,
    descending,
    ecdf,
    energy,
    first_ties,
    fixed_ratio,
    generalised_entropy,
    keep_count,
    largest_probability,
    ratio_of,
    scaled_activation_logits,
    share_count,
    strongest,
    top_count,
)

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
            expected = torch.zeros(rows, size, dtype=torch.bool).scatter(1, order[:, :count], True)
            assert torch.equal(strongest(values, count), expected)

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


def test_energy_by_hand() -> None:
    assert energy(torch.tensor([[math.log(1.0), math.log(3.0)]])).item() == pytest.approx(math.log(4), abs=1e-7)


@pytest.mark.parametrize(
    ("features", "percentile", "kept"),
    [(10, 85, 2), (10, 75, 2), (10, 65, 4), (10, 100, 1), (10, 0, 10), (3, 99, 1), (2048, 85, 307), (342, 85, 51)],
)
def test_percentile_keeps_half_to_even_and_at_least_one(features: int, percentile: float, kept: int) -> None:
    # 10 * 85 % = 8.5 -> 8, so 2 are kept; 7.5 -> 8; 6.5 -> 6
    assert keep_count(features, torch.tensor([float(percentile)])).item() == kept


def test_counts_do_not_fall_to_rounding() -> None:
    assert top_count(64, 1) == 1
    assert top_count(2048, 1) == 20
    assert top_count(342, 5) == 17
    assert share_count(3 * 32 * 32, 0.05) == 153
    assert share_count(100, 0.29) == 29  # 0.29 * 100 = 28.999999999999996 in floating point


def test_fractional_percentiles_are_not_rounded_to_float32() -> None:
    # 500 * 80.9 / 100 = 404.5 -> 404; in float32 80.9 is a little more, and 405 would come out
    assert keep_count(500, torch.tensor([80.9], dtype=torch.float64)).item() == 96
    assert top_count(1500, 4.6) == 69  # 1500 * 4.6 / 100 = 68.99999999999999 in floating point
    head = Head(torch.ones(2, 500))
    features = torch.rand(3, 500, generator=torch.Generator().manual_seed(0))
    outputs = Outputs(head(features), features, {View(): features})
    adaptive = detectors.AdaSCALE_A(p_min=80.9, p_max=80.9).fit(outputs, head).score(outputs)
    assert torch.equal(adaptive, detectors.SCALE(80.9).fit(None, head).score(outputs))


def test_generalised_entropy_by_definition() -> None:
    logits = torch.randn(6, 20, generator=torch.Generator().manual_seed(2)) * 3
    p = logits.double().softmax(1).sort(1, descending=True).values[:, :5]
    assert torch.allclose(generalised_entropy(logits, 0.3, 5), (p * (1 - p)).pow(0.3).sum(1), rtol=1e-10)
    assert generalised_entropy(torch.tensor([[0.0, 900.0]])).isfinite().all()


def test_ecdf_is_right_continuous() -> None:
    reference = torch.tensor([1.0, 2.0, 2.0, 4.0])
    values = torch.tensor([0.0, 1.0, 1.5, 2.0, 4.0, 9.0])
    assert ecdf(reference, values).tolist() == [0, 0.25, 0.25, 0.75, 1, 1]


def test_equal_activations_keep_the_lower_index_first() -> None:
    _, order = descending(torch.tensor([[1.0, 3.0, 3.0, 1.0, 3.0]]))
    assert order.tolist() == [[1, 2, 4, 0, 3]]


def test_activation_scaling_needs_no_second_head_call() -> None:
    generator = torch.Generator().manual_seed(0)
    head = Head(torch.randn(7, 20, generator=generator), torch.randn(7, generator=generator))
    features, ratio = torch.rand(9, 20, generator=generator), torch.rand(9, generator=generator).double() + 1
    scaled = head(features * ratio.exp()[:, None])
    assert torch.allclose(scaled_activation_logits(head(features), head.offset, ratio), scaled, rtol=1e-12)


def test_a_huge_ratio_counts_as_500() -> None:
    scaled = scaled_activation_logits(torch.tensor([[1e4, -3.0]]), torch.zeros(2), torch.tensor([5000.0]))
    assert scaled.tolist()[0] == pytest.approx([1e4 * math.exp(500), -3 * math.exp(500)])


@pytest.mark.parametrize("gap", [1.0, 20.0, 36.0, 38.0, 60.0])
def test_generalised_entropy_of_a_certain_prediction(gap: float) -> None:
    p = np.exp(-gap) / (1 + np.exp(-gap))  # of the other class; 1 - p of the first, without rounding
    expected = 2 * ((1 - p) * p) ** 0.1
    assert generalised_entropy(torch.tensor([[gap, 0.0]], dtype=torch.float64)).item() == pytest.approx(expected, 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [-1e5, -700.0, -660.0, 0.0, 300.0, 705.0, 1e5])
def test_energy_of_logits_whose_exponentials_overflow_or_vanish(shift: float, dtype: torch.dtype) -> None:
    logits = made("signed", 70, 1500).to(dtype) + shift  # more than one piece
    before = logits.clone()
    expected = torch.logsumexp(logits.double(), 1)
    assert torch.allclose(energy(logits), expected, rtol=1e-13, atol=1e-12)
    assert torch.allclose(largest_probability(logits), logits.double().softmax(1).amax(1), rtol=1e-9)
    assert torch.equal(logits, before)


def test_energy_of_rows_that_differ_by_more_than_any_exponential() -> None:
    logits = torch.tensor([[0.0, 0.0], [-2000.0, -2000.0], [2000.0, 0.0]])
    assert energy(logits).tolist() == pytest.approx([math.log(2), -2000 + math.log(2), 2000], rel=1e-12)
    assert energy(torch.empty(0, 3)).shape == (0,)


@pytest.mark.parametrize("top", [1, 2, 10, 29, 30, 99])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 10.0, 60.0])
def test_generalised_entropy_by_its_definition(top: int, sharpness: float) -> None:
    """At sharpness 60 the largest probability rounds to 1; the others' sum is what is left of it."""
    logits = sharpness * made("signed", 40, 30)
    p = logits.double().softmax(1).sort(1, descending=True).values
    rest = torch.cat([p[:, 1:].sum(1, keepdim=True), 1 - p[:, 1:]], 1)
    expected = (p * rest)[:, :top].pow(0.1).sum(1)
    assert torch.allclose(generalised_entropy(logits, 0.1, top), expected, rtol=1e-10)
