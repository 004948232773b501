"""What the default has to reach, and whether it does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import mean
from typing import NamedTuple

from benchmarks.generalise.candidates import DEFAULT
from benchmarks.generalise.results import TUNED, Results
from benchmarks.generalise.rules import MEAN_LOSS, WORST_LOSS


class Floor(NamedTuple):
    """A demand, what was found, and whether it is met."""

    text: str
    found: str
    met: bool


def floors(results: Results) -> Iterator[Floor]:
    ahead, lower = results.gaps(DEFAULT, results.best_single)
    text = "the mean AUROC of the default is at least 0.5 above the best single method of the other networks"
    yield Floor(text, str(ahead), ahead.value >= 0.5)
    yield Floor("its mean FPR@95 is at least 2 points lower", str(lower), lower.value <= -2)
    base = results.row(DEFAULT)
    for name in ("adascale_l", "fdbd"):
        other = results.row(name)
        behind = {network: other[network].auroc - base[network].auroc for network in results.networks}
        yield _worst(f"on no network is it more than 1.0 below {name}", behind, 1.0)
    yield from _few(results)
    for method in TUNED:
        found = results.tuned[method]
        shipped = {name: one.hindsight - one.shipped for name, one in found.items()}
        how_lost = {
            f"tuning {method}": shipped,
            f"{method} with the rule of the other networks": results.losses(method),
        }
        for how, lost in how_lost.items():
            value = mean(lost.values())
            text = f"{how} loses at most {MEAN_LOSS} to hindsight on average"
            yield Floor(text, f"{value:.2f}", value <= MEAN_LOSS)
            yield _worst(f"{how} loses at most {WORST_LOSS} to hindsight on every network", lost, WORST_LOSS)
        below = {name: one.default - one.shipped for name, one in found.items()}
        yield _worst(f"tuned {method} is never more than 0.5 below untuned", below, 0.5)


def _few(results: Results) -> Iterator[Floor]:
    means = {n: mean(found[DEFAULT][n] for found in results.few.values()) for n in (30, 300)}
    lost = means[300] - means[30]
    text = "with 30 images and no training set the default loses at most 3 points of its mean with 300"
    yield Floor(text, f"{lost:.2f}", lost <= 3)
    behind = {name: found["mls"][30] - found[DEFAULT][30] for name, found in results.few.items()}
    yield _worst("with 30 images it is never more than 1 point below MLS", behind, 1.0)


def _worst(text: str, values: dict[str, float], most: float) -> Floor:
    worst = max(values, key=lambda name: math.inf if math.isnan(values[name]) else values[name])
    return Floor(text, f"worst {values[worst]:+.2f}, {worst}", values[worst] <= most)
