"""The decision and its guarantee."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adascale import Calibration, InputError, View, detectors
from adascale.maths.promise import images_needed
from adascale.maths.split import split
from adascale.testing import example_outputs


def test_p_values_by_hand() -> None:
    calibration = Calibration(torch.tensor([1.0, 2.0, 2.0, 4.0]), alpha=0.4)
    p = calibration.p_value(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))
    assert p.tolist() == [1.0, 1.0, 4 / 5, 2 / 5, 2 / 5, 1 / 5]
    assert calibration.threshold == 2.0  # two of five ranks may be flagged
    assert calibration.is_ood(torch.tensor([2.0, 2.1])).tolist() == [False, True]


@settings(max_examples=200, deadline=None)
@given(
    n=st.integers(1, 400),
    alpha=st.one_of(st.sampled_from([0.01, 0.05, 0.1, 0.29, 1 / 3, 0.5]), st.floats(0.001, 0.999)),
    seed=st.integers(0, 1000),
    levels=st.sampled_from([3, 50, 10**9]),
)
def test_threshold_and_p_value_always_agree(n: int, alpha: float, seed: int, levels: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randint(0, levels, (n + 200,), generator=generator).double()
    calibration, fresh = Calibration(draw[:n], alpha), torch.cat([draw, draw - 0.5, draw + 0.5])
    p = calibration.p_value(fresh)
    assert torch.equal(calibration.is_ood(fresh), p <= calibration.level)
    assert p.min() >= 1 / (n + 1)
    assert p.max() <= 1


@pytest.mark.parametrize(("alpha", "needed"), [(0.05, 19), (0.01, 99), (0.1, 9), (0.5, 1), (0.3, 3), (0.001, 999)])
def test_how_many_images_a_promise_needs(alpha: float, needed: int) -> None:
    assert images_needed(alpha) == needed
    assert Calibration(torch.zeros(needed), alpha).level == alpha
    if needed > 1:
        fewer = Calibration(torch.zeros(needed - 1), alpha)
        assert fewer.level == 1 / needed
        assert f"needs at least {needed}" in fewer.guarantee()


def test_the_sentence() -> None:
    assert Calibration(torch.zeros(19)).guarantee() == (
        "At most 5 % of fresh in-distribution images are flagged on average; "
        "95 % of detectors with 19 calibration images flag at most 14.6 %."
    )


@pytest.mark.parametrize("n", [25, 120])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_the_guarantee_holds_on_fresh_data(n: int, alpha: float) -> None:
    """Monte Carlo over draws of everything: reference, calibration and fresh samples, through AdaSCALE itself."""
    population, head = example_outputs(6000, (View(),), seed=11)
    flagged, promised, draws = 0.0, 0.0, 150
    for draw in range(draws):
        order = torch.randperm(len(population), generator=torch.Generator().manual_seed(draw))
        sample, fresh = population[order[:n]], population[order[n : n + 400]]
        _, reference, held_out = split(n, seed=draw)
        detector = detectors.AdaSCALE_A().fit(sample[reference], head)
        calibration = Calibration(detector.score(sample[held_out]), alpha)
        flagged += float(calibration.is_ood(detector.score(fresh)).double().mean()) / draws
        promised += calibration.level / draws
    # The mean of the rate over draws is at most the level; its own deviation is about level / sqrt(draws).
    error = 3 * (promised / (n // 2 * draws)) ** 0.5
    assert flagged <= promised + error
    assert flagged >= promised - 1 / (len(held_out) + 1) - error  # and not because nothing is ever flagged


def test_fitting_and_calibrating_on_the_same_images_would_break_it() -> None:
    """Why the split is there: with few images the eCDF knows the reference samples, and p-values drift."""
    population, head = example_outputs(3000, (View(),), seed=12)
    order = torch.randperm(3000, generator=torch.Generator().manual_seed(0))
    reference = population[order[:200]]
    detector = detectors.AdaSCALE_A(p_min=0, p_max=99).fit(reference, head)
    own = detector.percentiles(reference).mean()
    assert float(own) == pytest.approx(99 * (0.5 - 0.5 / 200), abs=1e-9)  # fixed by construction, not by chance


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 5])
def test_bad_alpha(alpha: float) -> None:
    with pytest.raises(InputError, match="share of ID images"):
        Calibration(torch.zeros(3), alpha)


def test_no_scores() -> None:
    with pytest.raises(InputError, match="at least one"):
        Calibration(torch.zeros(0))
