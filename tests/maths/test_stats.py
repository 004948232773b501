"""The arithmetic, against hand-computed values and an independent NumPy transcription."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adascale import Head, Outputs, View, detectors
from adascale.maths import stats
from adascale.maths.quantiles import quantiles


def test_energy_by_hand() -> None:
    assert stats.energy(torch.tensor([[math.log(1.0), math.log(3.0)]])).item() == pytest.approx(math.log(4), abs=1e-7)


@pytest.mark.parametrize(
    ("features", "percentile", "kept"),
    [(10, 85, 2), (10, 75, 2), (10, 65, 4), (10, 100, 1), (10, 0, 10), (3, 99, 1), (2048, 85, 307), (342, 85, 51)],
)
def test_percentile_keeps_half_to_even_and_at_least_one(features: int, percentile: float, kept: int) -> None:
    # 10 * 85 % = 8.5 -> 8, so 2 are kept; 7.5 -> 8; 6.5 -> 6
    assert stats.keep_count(features, torch.tensor([float(percentile)])).item() == kept


def test_counts_do_not_fall_to_rounding() -> None:
    assert stats.top_count(64, 1) == 1
    assert stats.top_count(2048, 1) == 20
    assert stats.top_count(342, 5) == 17
    assert stats.share_count(3 * 32 * 32, 0.05) == 153
    assert stats.share_count(100, 0.29) == 29  # 0.29 * 100 = 28.999999999999996 in floating point


def test_fractional_percentiles_are_not_rounded_to_float32() -> None:
    # 500 * 80.9 / 100 = 404.5 -> 404; in float32 80.9 is a little more, and 405 would come out
    assert stats.keep_count(500, torch.tensor([80.9], dtype=torch.float64)).item() == 96
    assert stats.top_count(1500, 4.6) == 69  # 1500 * 4.6 / 100 = 68.99999999999999 in floating point
    head = Head(torch.ones(2, 500))
    features = torch.rand(3, 500, generator=torch.Generator().manual_seed(0))
    outputs = Outputs(head(features), features, {View(): features})
    adaptive = detectors.AdaSCALE_A(p_min=80.9, p_max=80.9).fit(outputs, head).score(outputs)
    assert torch.equal(adaptive, detectors.SCALE(80.9).fit(None, head).score(outputs))


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.5, 0.9, 0.95, 0.999, 1])
def test_quantiles_in_pieces_equal_quantiles_at_once(share: float) -> None:
    generator = torch.Generator().manual_seed(1)
    for values in (
        torch.randn(300, 11, generator=generator),
        torch.randn(40, 3, generator=generator).double() * 1e6,
        torch.randn(300, 7, generator=generator).clamp_min(0),
        torch.tensor([[-0.0, 1.0, 1.0, 2.0]]),
    ):
        ours, half = quantiles(partial(torch.split, values, 13), [share, 0.5])
        assert half == pytest.approx(float(np.quantile(values.double().numpy(), 0.5)), rel=1e-12)
        assert ours == pytest.approx(float(np.quantile(values.double().numpy(), share)), rel=1e-12, abs=1e-300)


def test_generalised_entropy_by_definition() -> None:
    logits = torch.randn(6, 20, generator=torch.Generator().manual_seed(2)) * 3
    p = logits.double().softmax(1).sort(1, descending=True).values[:, :5]
    assert torch.allclose(stats.generalised_entropy(logits, 0.3, 5), (p * (1 - p)).pow(0.3).sum(1), rtol=1e-10)
    assert stats.generalised_entropy(torch.tensor([[0.0, 900.0]])).isfinite().all()


def test_ecdf_is_right_continuous() -> None:
    reference = torch.tensor([1.0, 2.0, 2.0, 4.0])
    values = torch.tensor([0.0, 1.0, 1.5, 2.0, 4.0, 9.0])
    assert stats.ecdf(reference, values).tolist() == [0, 0.25, 0.25, 0.75, 1, 1]


def test_equal_activations_keep_the_lower_index_first() -> None:
    _, order = stats.descending(torch.tensor([[1.0, 3.0, 3.0, 1.0, 3.0]]))
    assert order.tolist() == [[1, 2, 4, 0, 3]]


def test_activation_scaling_needs_no_second_head_call() -> None:
    generator = torch.Generator().manual_seed(0)
    head = Head(torch.randn(7, 20, generator=generator), torch.randn(7, generator=generator))
    features, ratio = torch.rand(9, 20, generator=generator), torch.rand(9, generator=generator).double() + 1
    scaled = head(features * ratio.exp()[:, None])
    assert torch.allclose(stats.scaled_activation_logits(head(features), head.offset, ratio), scaled, rtol=1e-12)


def test_a_huge_ratio_counts_as_500() -> None:
    scaled = stats.scaled_activation_logits(torch.tensor([[1e4, -3.0]]), torch.zeros(2), torch.tensor([5000.0]))
    assert scaled.tolist()[0] == pytest.approx([1e4 * math.exp(500), -3 * math.exp(500)])


Array = np.ndarray[Any, np.dtype[np.float64]]


def shift_by_definition(a: Array, ae: Array, p: dict[str, float]) -> float:
    """Q' of one sample, term by term."""
    k1, k2 = (max(1, math.floor(len(a) * p[k] / 100)) for k in ("k1", "k2"))
    order = sorted(range(len(a)), key=lambda i: (-a[i], i))
    return p["lam"] * math.fsum(abs(ae[i] - a[i]) for i in order[:k1]) + math.fsum(max(ae[i], 0) for i in order[:k2])


def score_by_definition(a: Array, f: float, w: Array, b: Array, p: dict[str, float], variant: str) -> float:
    """The score of one sample whose Q' has rank share ``f``."""
    percentile = p["p_min"] + (1 - f) * (p["p_max"] - p["p_min"])
    keep = max(1, len(a) - int(np.round(len(a) * percentile / 100)))
    positive = np.maximum(a, 0)
    kept = np.sort(positive)[::-1][:keep].sum()
    r = positive.sum() / kept if kept > 0 else 1.0
    z = w @ (a * np.exp(r)) + b if variant == "a" else (w @ a + b) * r**2
    return -float(np.logaddexp.reduce(z))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([8, 64, 130]),
    signed=st.booleans(),
    p_min=st.sampled_from([0, 60, 80]),
    span=st.sampled_from([0, 5, 19]),
    k1=st.sampled_from([1, 10, 100]),
    k2=st.sampled_from([5, 100]),
    lam=st.sampled_from([0.0, 0.1, 10.0]),
    variant=st.sampled_from(["a", "l"]),
)
def test_adascale_equals_the_definition(
    seed: int, size: int, signed: bool, p_min: int, span: int, k1: float, k2: float, lam: float, variant: str
) -> None:
    rng = np.random.default_rng(seed)
    w, b = rng.normal(size=(4, size)) / 4, rng.normal(size=4)
    a = rng.normal(size=(12, size))
    a = a if signed else np.maximum(a, 0)
    ae = a + rng.normal(size=a.shape) * 0.2
    settings_ = {"p_min": p_min, "p_max": p_min + span, "k1": k1, "k2": k2, "lam": lam}
    head = Head(torch.from_numpy(w), torch.from_numpy(b))
    outputs = Outputs(head(torch.from_numpy(a)), torch.from_numpy(a), {View(): torch.from_numpy(ae)})
    detector = detectors.get(f"adascale_{variant}")(**settings_)
    shifts = np.array([shift_by_definition(a[i], ae[i], settings_) for i in range(12)])
    # A reference row meets itself in the eCDF; rounding must not decide whether it counts.
    shares = [np.count_nonzero(shifts[:6] <= q * (1 + 1e-12)) / 6 for q in shifts]
    expected = [score_by_definition(a[i], shares[i], w, b, settings_, variant) for i in range(12)]
    np.testing.assert_allclose(detector.fit(outputs[:6], head).score(outputs).numpy(), expected, rtol=1e-9, atol=1e-9)
