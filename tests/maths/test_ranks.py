"""Ranks among everything seen are independent and uniform, in bounded memory too."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from adascale.maths.draws import Draws, shuffled
from adascale.maths.ranks import ClassRanks, Ranks

Make = Callable[[np.random.Generator, int], np.ndarray]
SCORES: dict[str, Make] = {
    "continuous": lambda random, n: random.normal(size=n),
    "tied": lambda random, n: np.round(random.normal(size=n), 1),
    "discrete": lambda random, n: random.integers(0, 3, n).astype(float),
    "not iid": lambda random, n: random.permutation(np.arange(n) // 5).astype(float) + random.normal(),
    "with infinities": lambda random, n: np.where(random.random(n) < 0.3, np.inf, random.normal(size=n)),
}


def test_p_values_by_hand() -> None:
    ranks = Ranks(np.array([4.0, 1.0, 3.0, 2.0]), seed=0)
    assert ranks.place(5.0, 0.5, 0.0) == pytest.approx((0 + 0.5 * 1) / 5)
    assert ranks.place(2.5, 0.2, 0.0) == pytest.approx((3 + 0.2 * 1) / 6)
    assert ranks.place(2.0, 0.25, 0.0) == pytest.approx((4 + 0.25 * 2) / 7)
    assert ranks.place(math.inf, 1.0, 0.0) == pytest.approx(1 / 8)
    assert len(ranks) == 8
    assert ranks.exact


def test_p_values_of_classes_by_hand() -> None:
    ranks = ClassRanks(np.array([0, 0, 2]))
    assert ranks.place(0, 0.5) == pytest.approx((1 + 0.5 * 3) / 4)
    assert ranks.place(7, 0.5) == pytest.approx(0.5 * 1 / 5)
    assert ranks.place(2, 1.0) == pytest.approx((1 + 1.0 * 2) / 6)


def unlikely(counts: np.ndarray) -> float:
    """How many standard deviations chi-squared lies above what equal shares give."""
    expected = counts.sum() / counts.size
    return float((((counts - expected) ** 2 / expected).sum() - (counts.size - 1)) / math.sqrt(2 * (counts.size - 1)))


def stream(make: Make, capacity: int, n: int = 12, images: int = 30, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    scores = make(random, n + images)
    ranks, draws = Ranks(scores[:n], seed, capacity), Draws(seed, 2)
    return np.array([ranks.place(score, *draws[t]) for t, score in enumerate(scores[n:])])


@pytest.mark.parametrize("capacity", [8, 16, 24, 4096])
@pytest.mark.parametrize("kind", SCORES)
def test_p_values_are_uniform_and_independent(kind: str, capacity: int) -> None:
    """8: gaps from the start; 16 and 24: they begin within the stream; 4096: never."""
    p = np.stack([stream(SCORES[kind], capacity, seed=seed) for seed in range(250)])
    cells = np.minimum((p * 5).astype(int), 4)
    assert unlikely(np.bincount(cells.ravel(), minlength=5)) < 4
    for first, second in [(0, 1), (0, 29), (3, 4), (12, 13), (28, 29)]:  # places in the stream
        pairs = np.bincount(5 * cells[:, first] + cells[:, second], minlength=25)
        assert unlikely(pairs) < 4.5
    successors = np.bincount((5 * cells[:, :-1] + cells[:, 1:]).ravel(), minlength=25)
    assert unlikely(successors) < 4


def test_bins_with_edges_at_calibration_scores_would_not_be_uniform() -> None:
    """The check above can fail: scores binned by the median of the calibration scores are not uniform."""
    random = np.random.default_rng(0)
    p = []
    for seed in range(1500):
        scores = random.normal(size=6)
        binned = (scores > np.sort(scores[:5])[2]).astype(float)
        p.append(Ranks(binned[:5], seed).place(binned[5], random.random(), 0.0))
    assert unlikely(np.histogram(p, 10, (0, 1))[0]) > 4


def test_memory_is_bounded_and_nothing_is_lost_from_the_count() -> None:
    random = np.random.default_rng(0)
    ranks = Ranks(random.normal(size=50), 0, capacity=64)
    for t in range(500):
        ranks.place(random.normal(), *random.random(2))
        assert len(ranks.kept) <= 64
        assert len(ranks) == 51 + t
    assert not ranks.exact
    assert len(ranks.counts) == len(ranks.kept) + 1
    assert {ranks.kept[0], ranks.kept[-1]} <= set(ranks.kept)


def test_gaps_blur_p_values_only_a_little() -> None:
    random = np.random.default_rng(0)
    calibration, scores = random.normal(size=3000), random.normal(size=500)
    exact, gaps = Ranks(calibration, 0, 10_000), Ranks(calibration, 0, 1024)
    differences = [abs(exact.place(s, 0.5, 0.5) - gaps.place(s, 0.5, 0.5)) for s in scores]
    assert max(differences) < np.pi / 1024 * 2
    top = Ranks(calibration, 0, 1024)
    assert top.place(calibration.max() + 1, 1.0, 0.5) == pytest.approx(1 / 3001)  # the ends are kept


def test_draws_are_a_function_of_seed_and_index() -> None:
    first, second = Draws(7, 3), Draws(7, 3)
    assert first[5000] == second[5000]
    assert [first[i] for i in (3, 2000, 3)] == [second[i] for i in (3, 2000, 3)]
    assert first[0] != Draws(8, 3)[0]
    assert all(0 < u <= 1 for i in range(3000) for u in first[i])
    assert len({u for i in range(3000) for u in first[i]}) == 9000
    assert shuffled(7, 3).tolist() != list(first[0])
