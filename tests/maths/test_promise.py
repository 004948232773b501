"""Both promises about false alarms: what n images allow, what the sentence says, and Monte Carlo over draws."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adascale import Calibration, InputError
from adascale.maths.binomial import at_most
from adascale.maths.promise import allowed, images_needed, promised, rate_range
from adascale.maths.split import total_needed

DRAWS = 1000


@pytest.mark.parametrize(("n", "low", "high"), [(150, 2.2, 7.7), (20, 0.3, 13.9)])
def test_the_range_of_one_detector(n: int, low: float, high: float) -> None:
    calibration = Calibration(torch.arange(float(n)), 0.05)
    assert [round(100 * end, 1) for end in calibration.rate_range] == [low, high]
    assert f"90 % of detectors with {n} calibration images flag {low} to {high} %." in calibration.guarantee()


def test_where_scores_tie_the_range_is_a_bound() -> None:
    calibration = Calibration(torch.cat([torch.arange(140.0), torch.full((10,), 139.0)]), 0.05)
    assert calibration.rate_range[0] == 0
    assert calibration.guarantee().endswith("95 % of detectors with 150 calibration images flag at most 7.7 %.")


def test_59_images_promise_5_percent_with_95_percent_confidence() -> None:
    assert images_needed(0.05, 0.95) == 59
    assert total_needed(0.05, 0.2, 0.95) == 73
    scores = torch.arange(59.0)
    assert Calibration(scores, 0.05, 0.95).threshold == 58  # the largest of them
    assert Calibration(scores, 0.05, 0.95).promised == 0.05
    assert Calibration(scores, 0.05, 0.95).guarantee() == (
        "At most 5 % of fresh in-distribution images are flagged, with 95 % confidence; "
        "90 % of detectors with 59 calibration images flag 0.087 to 5.0 %."
    )


def test_fewer_images_say_what_they_can_promise() -> None:
    few = Calibration(torch.arange(20.0), 0.05, 0.95)
    assert few.promised == pytest.approx(1 - 0.05 ** (1 / 20))
    assert few.guarantee().startswith(
        "At most 13.9 % of fresh in-distribution images are flagged, with 95 % confidence"
    )
    assert few.guarantee().endswith("13.9 %. 5 % needs at least 59 calibration images.")


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 300),
    alpha=st.one_of(st.sampled_from([0.01, 0.05, 0.1, 0.5]), st.floats(0.002, 0.998)),
    confidence=st.one_of(st.sampled_from([0.5, 0.9, 0.95, 0.99]), st.floats(0.5, 0.999)),
    seed=st.integers(0, 1000),
    levels=st.sampled_from([3, 50, 10**9]),
)
def test_the_confident_threshold_by_its_definition(
    n: int, alpha: float, confidence: float, seed: int, levels: int
) -> None:
    """The smallest score with ``P(Binomial(n, alpha) <= scores above) <= 1 - confidence``; p-values agree with it."""
    draw = torch.randint(0, levels, (n + 100,), generator=torch.Generator().manual_seed(seed)).double()
    calibration, fresh = Calibration(draw[:n], alpha, confidence), torch.cat([draw, draw - 0.5, draw + 0.5])
    assert torch.equal(calibration.is_ood(fresh), calibration.p_value(fresh) <= calibration.level)
    within = (1 - confidence) * (1 + 1e-9)
    candidates = [float(s) for s in draw[:n] if at_most(int((draw[:n] > s).sum()), n, alpha) <= within]
    assert calibration.threshold == min(candidates, default=float(draw[:n].max()))
    assert (calibration.promised == alpha) == bool(candidates) == (n >= images_needed(alpha, confidence))


@given(n=st.integers(1, 400), alpha=st.floats(0.001, 0.999))
def test_without_a_confidence_nothing_has_changed(n: int, alpha: float) -> None:
    calibration, most = Calibration(torch.arange(float(n)), alpha), max(alpha, 1 / (n + 1))
    assert calibration.level == most
    ranks = [k for k in range(1, n + 1) if k / (n + 1) <= most]
    assert calibration.threshold == n - ranks[-1]


def test_more_confidence_flags_less() -> None:
    scores = torch.randn(500, generator=torch.Generator().manual_seed(0))
    thresholds = [Calibration(scores, 0.05, c).threshold for c in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)]
    assert thresholds == sorted(thresholds)
    assert len(set(thresholds)) == len(thresholds)
    assert Calibration(scores, 0.05).threshold < thresholds[3]


@pytest.mark.parametrize("confidence", [0, 0.05, 0.4, 1, 95, math.nan])
def test_bad_confidence(confidence: float) -> None:
    with pytest.raises(InputError, match=r"confidence=.* from 0\.5 to below 1"):
        Calibration(torch.zeros(3), 0.05, confidence)


def drawn(n: int, seed: int) -> Tensor:
    """Calibration scores of 1,000 detectors. They are uniform, so a threshold t flags 1 - t of fresh images."""
    return torch.rand(DRAWS, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", [60, 200, 1000])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1])
def test_false_alarms_over_calibration_draws(n: int, alpha: float) -> None:
    """On average at most alpha, with the stated range; with confidence, above alpha in at most 5 % of the draws."""
    error = 4 / math.sqrt(DRAWS)
    scores = drawn(n, n)
    rates = 1 - torch.tensor([Calibration(row, alpha).threshold for row in scores])
    level, (low, high) = promised(n, alpha), Calibration(scores[0], alpha).rate_range
    k = allowed(n, alpha)
    spread = math.sqrt(k * (n + 1 - k) / (n + 1) ** 2 / (n + 2))
    assert k / (n + 1) - error * spread <= float(rates.mean()) <= level + error * spread
    assert float(((rates >= low) & (rates <= high)).double().mean()) == pytest.approx(0.9, abs=0.3 * error)
    rates = 1 - torch.tensor([Calibration(row, alpha, 0.95).threshold for row in scores])
    above = float((rates > promised(n, alpha, 0.95)).double().mean())
    assert above <= 0.05 + error * math.sqrt(0.05 * 0.95)
    exact = at_most(allowed(n, alpha, 0.95) - 1, n, promised(n, alpha, 0.95))
    assert above == pytest.approx(exact, abs=error * math.sqrt(0.05 * 0.95))  # and not because it never flags anything


def test_promises_hold_where_scores_tie() -> None:
    """Scores with twenty values: the rate above a threshold is known, and at most what the range says."""
    n, alpha, values = 200, 0.05, 20
    scores = (drawn(n, 5) * values).floor()
    for confidence, most in ((None, rate_range(n, allowed(n, alpha))[1]), (0.95, alpha)):
        found = torch.tensor([Calibration(row, alpha, confidence).threshold for row in scores])
        rates = (values - 1 - found) / values
        assert float(rates.mean()) <= alpha
        assert float((rates > most).double().mean()) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / DRAWS)
