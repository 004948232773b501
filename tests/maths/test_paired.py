"""The paired bootstrap between two methods: its definition, its direction, how often it covers the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.metrics import Metrics, bootstrap, evaluate, paired_bootstrap


def methods(n: int, seed: int = 0, noise: float = 1.0) -> tuple[list[Tensor], list[Tensor]]:
    """A method, and one that adds noise to its scores: ID, then two OOD sets of different sizes, with ties."""
    generator = torch.Generator().manual_seed(seed)
    first = [
        torch.randn(count, generator=generator, dtype=torch.float64) + shift
        for count, shift in ((n, 0), (n // 2, 1), (n, 2))
    ]
    second = [part + noise * torch.randn(len(part), generator=generator, dtype=torch.float64) for part in first]
    return [part.mul(8).round() for part in first], [part.mul(8).round() for part in second]


def mean_difference(first: list[Tensor], second: list[Tensor], metric: str) -> float:
    figures = [[getattr(evaluate(known, part), metric) for part in sets] for known, *sets in (first, second)]
    return float(np.mean(figures[0]) - np.mean(figures[1]))


@pytest.mark.parametrize("metric", Metrics._fields)
def test_it_is_the_difference_of_the_means_over_sets_on_the_same_resampled_images(metric: str) -> None:
    """A slow loop over the definition: both methods, and all sets, see the same drawn images."""
    first, second = methods(24)
    found = paired_bootstrap(first, second, metric, resamples=60, seed=3)
    assert found.value == pytest.approx(mean_difference(first, second, metric), abs=1e-12)
    generator, drawn = np.random.default_rng(3), [[], [], []]  # type: tuple[np.random.Generator, list[list[Tensor]]]
    for place, part in enumerate(first):  # a block holds all 60 resamples of ID, then those of each set
        drawn[place] = list(torch.from_numpy(generator.integers(0, len(part), (60, len(part)), dtype=np.int32)).long())
    slow = []
    for one in zip(*drawn, strict=True):
        mine, theirs = ([part[rows] for part, rows in zip(side, one, strict=True)] for side in (first, second))
        slow.append(mean_difference(mine, theirs, metric))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])), abs=1e-12)


def test_the_better_method_has_the_positive_difference_and_exchange_turns_the_sign() -> None:
    better, worse = methods(400)
    found, turned = paired_bootstrap(better, worse), paired_bootstrap(worse, better)
    assert 0 < found.low < found.value < found.high
    assert found.beyond_chance
    assert turned.beyond_chance
    assert turned == pytest.approx((-found.value, -found.high, -found.low))


def test_equal_methods_do_not_differ_and_monotone_changes_do_not_matter() -> None:
    first, second = methods(50)
    assert paired_bootstrap(first, first) == (0, 0, 0)
    assert not paired_bootstrap(first, first).beyond_chance
    assert paired_bootstrap([part.div(9).exp() for part in first], second) == paired_bootstrap(first, second)


def test_pairs_tell_apart_what_single_intervals_do_not() -> None:
    first, second = methods(200, noise=0.5)
    intervals = [bootstrap(part[0], part[1]) for part in (first, second)]
    assert intervals[0][0] < intervals[1][1]  # the intervals of the two methods overlap
    assert paired_bootstrap(first[:2], second[:2]).beyond_chance


def test_it_is_seeded_and_a_higher_level_is_wider() -> None:
    first, second = methods(60)
    assert paired_bootstrap(first, second) == paired_bootstrap(first, second)
    assert paired_bootstrap(first, second) != paired_bootstrap(first, second, seed=1)
    narrow, wide = (paired_bootstrap(first, second, level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_it_covers_the_true_difference_about_as_often_as_it_says() -> None:
    """Two normal methods: AUROC = Phi(shift / sqrt(2 variance)), so that the true difference is known."""

    def normal(shift: float, variance: float) -> float:
        return 0.5 * (1 + math.erf(shift / math.sqrt(2 * variance) / math.sqrt(2)))

    truth = normal(1, 1) - normal(1, 2)
    covered = 0
    for seed in range(300):
        generator = torch.Generator().manual_seed(seed)
        first = [torch.randn(60, generator=generator) + shift for shift in (0, 1)]
        second = [part + torch.randn(60, generator=generator) for part in first]
        found = paired_bootstrap(first, second, resamples=200, seed=seed)
        covered += found.low <= truth <= found.high
    assert 0.90 <= covered / 300 <= 0.98


@pytest.mark.parametrize("wrong", [([0], [0]), ([0, 1], [0, 1, 1]), ([0, 1], [1, 0])])
def test_scores_of_other_images_are_refused(wrong: tuple[list[int], list[int]]) -> None:
    parts = torch.zeros(5), torch.zeros(6)
    first, second = ([parts[i] for i in side] for side in wrong)
    with pytest.raises(InputError, match="same images"):
        paired_bootstrap(first, second)
