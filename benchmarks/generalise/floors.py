"""What the default has to reach, and whether it does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import mean
from typing import NamedTuple

from benchmarks.generalise.candidates import DEFAULT
from benchmarks.generalise.results import TUNED, Results


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
        chosen = {name: results.rule_without(name) for name in found}
        ruled = {name: one.hindsight - one.rules[chosen[name]] for name, one in found.items()}
        shipped = {name: one.hindsight - one.shipped for name, one in found.items()}
        for how, lost in ((f"tuning {method}", shipped), (f"{method} with the rule of the other networks", ruled)):
            value = mean(lost.values())
            yield Floor(f"{how} loses at most 0.4 to hindsight on average", f"{value:.2f}", value <= 0.4)
            yield _worst(f"{how} loses at most 1.0 to hindsight on every network", lost, 1.0)
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
