"""Evidence: the worth of a score among reference scores."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adascale.maths.conformal import Calibration
from adascale.maths.evidence import Evidence, decorrelated

scores = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=40)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_by_hand() -> None:
    """Nine scores 1 to 9: the five largest make the tail, so that u = 4 and the mean excess over it is 3."""
    found = Evidence.of(torch.arange(1.0, 10.0))
    expected = {
        1: math.log(10 / 9),  # eight of nine are larger
        4: math.log(10 / 6),
        2.5: (math.log(10 / 8) + math.log(10 / 7)) / 2,  # between 2 and 3
        7: math.log(10 / 6) + 1,  # one mean excess beyond u
        400: math.log(10 / 6) + 396 / 3,
        -2: math.log(10 / 9) * math.exp(-1),  # one spread of the knots below the first
    }
    assert found(tensor(*expected)).tolist() == pytest.approx(list(expected.values()), rel=1e-12)


@settings(deadline=None)
@given(scores, scores)
def test_it_is_positive_finite_and_grows_with_the_score(reference: list[float], given: list[float]) -> None:
    ranked = tensor(*sorted(given))
    found = Evidence.of(tensor(*reference))(ranked)
    assert found.isfinite().all()
    assert (found >= 0).all()
    assert (found.diff() >= 0).all()


def test_it_follows_the_conformal_p_value_within_the_sample_and_does_not_tie_beyond_it() -> None:
    drawn = torch.randn(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found, calibration = Evidence.of(drawn), Calibration(drawn)
    inside = drawn.quantile(torch.linspace(0.01, 0.89, 30, dtype=torch.float64))
    p = torch.exp(-found(inside))
    assert (p <= calibration.p_value(inside) + 1e-12).all()
    assert (p >= calibration.p_value(inside) - 1.5 / 501).all()
    assert (found(tensor(5, 6, 60)).diff() > 1).all()
    exponential = torch.empty(4000, dtype=torch.float64).exponential_(generator=torch.Generator().manual_seed(1))
    assert Evidence.of(exponential)(tensor(20.0)).item() == pytest.approx(20, rel=0.1)  # its own tail


@pytest.mark.parametrize("reference", [[3.0], [3.0] * 30, [0.0, 0.0], [-1.0, math.inf], [math.inf] * 3])
def test_reference_scores_that_do_not_differ_still_order_the_others(reference: list[float]) -> None:
    found = Evidence.of(tensor(*reference))(tensor(-9, 2.9, 3, 3.1, 9))
    assert found.isfinite().all()
    assert (found.diff() >= 0).all()
    assert found[-1] > found[0]


def test_members_that_say_the_same_share_one_weight() -> None:
    first, second, noise = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    twins = torch.stack([first, first + 0.3 * noise, second], 1)
    weights = decorrelated(twins)
    assert weights.mean().item() == pytest.approx(1)
    assert weights[:2].tolist() == pytest.approx([0.83, 0.83], abs=0.03)  # 1 / (1 + 2/3 of their correlation), scaled
    assert weights[2] > 1.3
    alike = torch.stack([first, second], 1)
    assert decorrelated(alike).tolist() == pytest.approx([1, 1], abs=0.01)


def test_no_weight_is_negative() -> None:
    base, noise = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    other = torch.randn(1000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    table = torch.stack([base + noise, base + other, base], 1)
    assert (decorrelated(table) >= 0).all()
