"""Bootstrap intervals, and FPR at any TPR."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from adascale import InputError, metrics
from adascale.maths.metrics import Metrics, bootstrap, evaluate

TRUE_AUROC = 0.5 * (1 + math.erf(0.5))  # of two normal distributions one deviation apart

PLAIN: dict[str, Callable[[Tensor, Tensor], float]] = {
    "auroc": metrics.auroc,
    "fpr95": metrics.fpr_at_tpr,
    "fpr95_id": lambda known, unknown: metrics.fpr_at_tpr(-unknown, -known),
    "aupr_in": lambda known, unknown: metrics.aupr(-unknown, -known),
    "aupr_out": metrics.aupr,
}


def scores(n: int, seed: int = 0, ties: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    pair = torch.randn(n, generator=generator), torch.randn(n + n // 3, generator=generator) + 1
    return (pair[0].round(), pair[1].round()) if ties else pair


def naive(pair: tuple[Tensor, Tensor], metric: str, resamples: int, seed: int) -> list[float]:
    generator, found = np.random.default_rng(seed), []
    for _ in range(resamples):
        known, unknown = (side[generator.integers(0, len(side), len(side), dtype=np.int32)] for side in pair)
        found.append(PLAIN[metric](known, unknown))
    return found


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("metric", ["auroc", "fpr95", "aupr_out"])
def test_one_resample_is_the_metric_of_that_resample(metric: str, ties: bool) -> None:
    for seed in range(20):
        pair = scores(30, seed, ties)
        low, high = bootstrap(*pair, metric, resamples=1, seed=seed)
        assert low == high == pytest.approx(naive(pair, metric, 1, seed)[0], abs=1e-12)


@pytest.mark.parametrize(("metric", "turned"), [("fpr95_id", "fpr95"), ("aupr_in", "aupr_out")])
def test_the_other_side(metric: str, turned: str) -> None:
    known, unknown = scores(50)
    assert bootstrap(known, unknown, metric) == bootstrap(-unknown, -known, turned)


@pytest.mark.parametrize("metric", Metrics._fields)
def test_as_a_loop_finds_it(metric: str) -> None:
    pair = scores(150)
    low, high = bootstrap(*pair, metric, resamples=2000)
    expected = np.quantile(naive(pair, metric, 300, seed=1), [0.025, 0.975])
    assert (low, high) == pytest.approx(tuple(expected), abs=0.25 * (high - low))
    assert low <= getattr(evaluate(*pair), metric) <= high


def test_covers_the_truth() -> None:
    intervals = [bootstrap(*scores(80, seed), resamples=300) for seed in range(200)]
    covered = sum(low <= TRUE_AUROC <= high for low, high in intervals)
    assert 0.88 <= covered / 200 <= 0.99


def test_shrinks_with_images_and_grows_with_the_level() -> None:
    widths = [high - low for low, high in (bootstrap(*scores(n)) for n in (50, 200, 800))]
    assert widths[0] > 1.5 * widths[1] > 2.25 * widths[2]
    pair = scores(100)
    narrow, wide = (bootstrap(*pair, level=level) for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_deterministic() -> None:
    pair = scores(60)
    assert bootstrap(*pair) == bootstrap(*pair)
    assert bootstrap(*pair) != bootstrap(*pair, seed=1)


@pytest.mark.parametrize("metric", Metrics._fields)
def test_perfect_and_equal(metric: str) -> None:
    best = 0 if metric.startswith("fpr") else 1
    known, unknown = torch.arange(20), torch.arange(30, 50)
    assert bootstrap(known, unknown, metric) == (best, best)
    assert bootstrap(torch.tensor([1.0]), torch.tensor([2.0]), metric) == (best, best)
    assert bootstrap(torch.zeros(5), torch.zeros(7), "auroc") == (0.5, 0.5)


def test_many_scores_are_resampled_in_pieces_as_a_loop_does() -> None:
    pair = scores(1000)  # 1,000 resamples of 2,333 scores do not fit into one piece
    low, high = bootstrap(*pair)
    expected = np.quantile(naive(pair, "auroc", 300, seed=1), [0.025, 0.975])
    assert (low, high) == pytest.approx(tuple(expected), abs=0.25 * (high - low))


def test_fpr_at_any_tpr() -> None:
    pair = scores(200)
    found = evaluate(*pair, tpr=0.8)
    assert found.fpr95 == metrics.fpr_at_tpr(*pair, tpr=0.8)
    assert found.fpr95_id == metrics.fpr_at_tpr(-pair[1], -pair[0], tpr=0.8)
    assert found.fpr95 < evaluate(*pair).fpr95
    assert found.auroc == evaluate(*pair).auroc
    low, high = bootstrap(*pair, "fpr95", tpr=0.8)
    assert low <= found.fpr95 <= high < evaluate(*pair).fpr95


@pytest.mark.parametrize(
    "wrong", [{"metric": "auc"}, {"resamples": 0}, {"level": 1.0}, {"level": 0.0}, {"metric": "fpr95", "tpr": 1.5}]
)
def test_refused(wrong: dict[str, str | float]) -> None:
    with pytest.raises(InputError, match="=") as caught:
        bootstrap(*scores(10), **wrong)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="NaN"):
        bootstrap(torch.tensor([float("nan")]), torch.ones(3))
