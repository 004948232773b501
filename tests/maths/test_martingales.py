"""Bets against uniform p-values: values by hand, fairness, no overflow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adascale.maths.martingales import EXPONENTS, MEMORY, PARTS, Histograms, Wagers, distances, power_bets


def played(*p: float) -> tuple[float, float]:
    """``M_t`` and ``R_t`` after these p-values."""
    wagers = Wagers(len(EXPONENTS))
    for one in p:
        wagers.play(power_bets(np.array(one)))
    ever, continuing = np.exp(wagers.evidence()).tolist()
    return ever, continuing


def test_evidence_by_hand() -> None:
    # f(1) = e, whose mean over 0.05, ..., 0.95 is 0.5; the mean of e^2 is 2470 / 400 / 19 = 0.325
    assert played(1.0) == pytest.approx((0.5, 0.5))
    assert played(1.0, 1.0) == pytest.approx((0.325, 0.325 + 0.5))
    exponents = [k / 20 for k in range(1, 20)]
    first, second = ([e * p ** (e - 1) for e in exponents] for p in (0.01, 0.3))
    product = sum(a * b for a, b in zip(first, second, strict=True)) / 19
    summed = sum((a + 1) * b for a, b in zip(first, second, strict=True)) / 19
    assert played(0.01, 0.3) == pytest.approx((product, summed))


def test_small_p_values_are_evidence_and_large_ones_are_not() -> None:
    assert played(*[0.01] * 5)[0] > 100
    assert played(*[0.9] * 5)[0] < 1


def test_bets_are_fair() -> None:
    middles = (np.arange(200_000) + 0.5) / 200_000
    # of p^6 the density is p^(1/6 - 1) / 6, which weighs the values near 0 that matter for small exponents
    weighed = np.exp(power_bets(middles**6)) * (6 * middles**5)[:, None]
    assert weighed.mean(0)[4:] == pytest.approx(1, abs=1e-3)
    assert (weighed.mean(0) < 1 + 1e-9).all()  # p-values below 2^-53 count as that, so the smallest exponents lose
    players = Histograms(1)
    for p in np.random.default_rng(0).random(50) ** 2:
        players.bets(np.array([p]))
    parts = (np.arange(64) + 0.5) / 64
    before = players.counts.copy()
    fair = []
    for part in parts:
        players.counts = before.copy()
        fair.append(np.exp(players.bets(np.array([part])))[0])
    assert np.mean(fair, 0) == pytest.approx(1)


def test_players_learn_the_part_that_comes_up_and_some_forget() -> None:
    players = Histograms(1)
    for _ in range(100):
        players.bets(np.array([0.3]))
    count = 100 / (1 - 0)
    bets = np.exp(players.bets(np.array([0.3])))[0]
    assert bets[0] == pytest.approx(PARTS[0] * (count + 0.5) / (count + PARTS[0] / 2))
    assert (bets > 0.6 * PARTS).all()
    for _ in range(5000):
        players.bets(np.array([0.9]))
    late = np.exp(players.bets(np.array([0.3])))[0]
    assert (late[np.isfinite(MEMORY)] < 0.2 * late[np.isinf(MEMORY)]).all()


def test_distances_go_around_the_circle() -> None:
    p, before = np.array([0.1, 0.9, 0.5, 0.25]), np.array([0.9, 0.1, 0.5, 0.75])
    assert distances(p, before) == pytest.approx([0.4, 0.4, 0.0, 1.0])


def test_nothing_overflows() -> None:
    wagers = Wagers(len(EXPONENTS))
    for p in [0.0, 1e-300] * 2000:
        wagers.play(power_bets(np.array(p)))
    assert np.isfinite(wagers.evidence()).all()
    assert wagers.evidence()[0] > 1e4  # far beyond exp(709), the largest number
    for _ in range(20_000):
        wagers.play(power_bets(np.array(1.0)))
    assert np.isfinite(wagers.evidence()).all()


def test_streams_side_by_side_are_the_same_as_alone() -> None:
    p = np.random.default_rng(0).random((20, 3))
    together, players = Wagers(3, len(PARTS)), Histograms(3)
    for row in p:
        together.play(players.bets(row))
    alone, player = Wagers(1, len(PARTS)), Histograms(1)
    for row in p:
        alone.play(player.bets(row[1:2]))
    assert np.array_equal(together.evidence()[:, 1], alone.evidence()[:, 0])
    assert math.isfinite(float(alone.evidence()[1, 0]))
