"""The estimated share of OOD images, with an interval that holds."""

from __future__ import annotations

import numpy as np
import pytest

from adascale.maths.share import ShareEstimate


def estimate(
    share: float, seed: int, shift: float = 5.0, n: int = 300, images: int = 400
) -> tuple[float, float, float]:
    random = np.random.default_rng(seed)
    scores = random.normal(size=images) + shift * (random.random(images) < share)
    found = ShareEstimate(random.normal(size=n)).of(scores)
    assert found is not None
    return found.estimate, found.low, found.high


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
def test_the_interval_holds_the_share_of_clearly_ood_images(share: float) -> None:
    found = [estimate(share, seed) for seed in range(20)]
    assert sum(low <= share <= high for _, low, high in found) >= 19
    assert np.mean([middle for middle, *_ in found]) == pytest.approx(share, abs=0.04)


def test_the_lower_end_holds_where_ood_images_look_like_id_images() -> None:
    found = [estimate(0.5, seed, shift=1.0) for seed in range(20)]
    assert all(low <= 0.5 for _, low, _ in found)
    assert np.median([low for _, low, _ in found]) > 0.05


def test_few_images_say_little() -> None:
    _, low, high = estimate(0.0, 0, n=20, images=10)
    assert low == 0
    assert high > 0.3
    assert ShareEstimate(np.zeros(3)).of(np.empty(0)) is None


def test_ties_and_infinite_scores() -> None:
    found = ShareEstimate(np.zeros(100)).of(np.array([0.0] * 50 + [np.inf] * 50))
    assert found is not None
    assert found.estimate == pytest.approx(0.5)
    assert found.low > 0.2
