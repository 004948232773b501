"""The false discovery rate over a batch: Benjamini-Hochberg by hand, against SciPy, and by Monte Carlo."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from adascale import Calibration, InputError
from adascale.maths.discoveries import discoveries, largest_discovery, limits


def test_by_hand() -> None:
    p = torch.tensor([0.9, 0.01, 0.02, 0.04, 0.5], dtype=torch.float64)
    assert discoveries(p, 0.1).tolist() == [False, True, True, True, False]  # 0.04 <= 0.1 * 3 / 5, though > 0.02
    assert discoveries(p, 0.05).tolist() == [False, True, True, False, False]
    assert discoveries(p, 0.01).tolist() == [False] * 5
    assert largest_discovery(p, 0.1) == 0.04
    assert discoveries(p[:0], 0.1).tolist() == []


def test_a_p_value_at_its_bound_is_a_discovery() -> None:
    for n in range(1, 200):  # 1 / (n + 1) = fdr / 1 in floating point, however it is rounded
        assert discoveries(torch.tensor([1.0]).double() / (n + 1), 1 / (n + 1)).all()
        assert discoveries(torch.full((7,), 3.0).double() / (n + 3), 3 / (n + 3)).all()


def test_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        p = torch.rand(40, dtype=torch.float64, generator=generator) ** 3
        adjusted = stats.false_discovery_control(p.numpy())
        assert discoveries(p, 0.2).tolist() == (adjusted <= 0.2).tolist()


@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("n", [60, 200, 1000])
def test_the_false_discovery_rate_over_draws(n: int, share: float) -> None:
    """1,000 draws of calibration images and of a batch of 200; OOD images score higher, but not always."""
    fdr, size, draws = 0.1, 200, 1000
    generator = torch.Generator().manual_seed(int(1000 * share) + n)
    ood = torch.arange(size) < share * size
    false, power = [], []
    for _ in range(draws):
        known = torch.randn(n, dtype=torch.float64, generator=generator)
        batch = torch.randn(size, dtype=torch.float64, generator=generator) + 4 * ood
        found = discoveries(Calibration(known).p_value(batch), fdr)
        false.append(_share(found & ~ood, found))
        power.append(_share(found & ood, ood))
    rates = torch.tensor(false)
    error = 4 * float(rates.std()) / math.sqrt(draws)
    assert float(rates.mean()) <= fdr * (1 - share) + error
    if share == 0.5:
        assert sum(power) / draws > 0.9


def _share(part: Tensor, whole: Tensor) -> float:
    return int(part.sum()) / max(int(whole.sum()), 1)


def test_too_few_calibration_images_are_named() -> None:
    assert limits(5, 100, 0.1) == (
        "fdr=0.1: with 5 calibration images no p-value is below 1/6, so there can be no discoveries. "
        "Fit on more images."
    )
    assert "with 99 calibration images at least 10 of 100 images must score above all of them" in str(
        limits(99, 100, 0.1)
    )
    assert limits(999, 100, 0.1) is None  # one image is enough
    p = torch.full((100,), 1.0).double()
    p[:10] = 1 / 100
    assert int(discoveries(p, 0.1).sum()) == 10
    assert not discoveries(p.roll(-1)[:99], 0.09).any()


@pytest.mark.parametrize("fdr", [0, 1, -0.1, 10])
def test_bad_fdr(fdr: float) -> None:
    with pytest.raises(InputError, match="share of discoveries"):
        discoveries(torch.ones(3), fdr)
