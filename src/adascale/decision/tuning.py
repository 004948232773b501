"""The search for parameters: a grid on extracted outputs, judged by AUROC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors import Detector
from adascale.maths.metrics import auroc, weighted_aurocs

FEWEST_IMAGES = 64
MOST_CHOSEN = 200
_CHOSEN_SHARE = 0.3
# Shuffled and mixed images keep the detail of ID images, as near-OOD images do; blurred ones, like far-OOD images, do
# not. Near and far count the same.
KIND_WEIGHTS: Mapping[str, float] = {"shuffled": 0.5, "mixed": 0.5, "blurred": 1.0}
DRAWS = 200
LIKELY = 0.05  # points that are the best in this share of the draws are averaged over
_PERCENTILES = (60, 65, 70, 75, 80, 85, 90, 95, 99)
# The grids of the AdaSCALE paper by name. `pairs` is ours: it includes equal percentiles, which give SCALE or LTS.
GRIDS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "one-knob": tuple({"p_min": 60, "p_max": p} for p in _PERCENTILES[1:]),
    "paper": tuple({"p_min": a, "p_max": b} for a in _PERCENTILES for b in _PERCENTILES if a < b),
    "pairs": tuple({"p_min": a, "p_max": b} for a in _PERCENTILES for b in _PERCENTILES if a <= b),
}

Point = Mapping[str, Any]
Judge = Literal["self", "ood"]  # outliers made from ID images, or OOD validation images


@dataclass(frozen=True)
class Tuning:
    """The parameters that were chosen, how they were judged, and every trial (point, criterion) in grid order.

    default_auroc: the AUROC of the parameters that would have been used otherwise, judged in the same way.
    """

    chosen: Point
    auroc: float
    default_auroc: float | None
    judged_by: str
    trials: tuple[tuple[Point, float], ...] = ()

    def __str__(self) -> str:
        values = ", ".join(f"{name}={_spelt(value)}" for name, value in self.chosen.items())
        instead = "" if self.default_auroc is None else f", the default {100 * self.default_auroc:.2f} %"
        return (
            f"{values}: chosen from {len(self.trials)} by AUROC ({100 * self.auroc:.2f} %{instead}) on {self.judged_by}"
        )


def _spelt(value: Any) -> str:
    """As ``--set`` takes it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def grid(method: Detector, space: Mapping[str, Sequence[Any]] | None = None) -> list[Point]:
    """Every combination of values that the method accepts. ``space``: by default the method's own search space."""
    space = method.search_space if space is None else space
    if not space:
        raise InputError(f"{method.name} has nothing left to tune; give a grid, or set fewer of its parameters.")
    points: list[Point] = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    usable = []
    for point in points:
        with suppress(InputError):
            replace(method, **point)  # refuses values that do not go together
            usable.append(point)
    if not usable:
        raise InputError(f"{method.name} accepts none of the {len(points)} points of the grid {dict(space)}.")
    return usable


def chosen_count(n: int) -> int:
    """How many of n ID images are set aside to choose parameters on: 0 if n is below 64."""
    return min(MOST_CHOSEN, int(n * _CHOSEN_SHARE)) if n >= FEWEST_IMAGES else 0


class Fold(NamedTuple):
    """ID images to judge by, outliers to tell them from, and what the method is fitted on meanwhile: other images."""

    reference: Outputs | None
    known: Outputs
    unknown: Mapping[str, Outputs]


def search_grid(
    method: Detector,
    points: Sequence[Point],
    folds: Sequence[Fold],
    head: Head,
    judged_by: str,
    *,
    train: Outputs | None = None,
    weights: Mapping[str, float] | None = None,
    draws: int = 0,
) -> Tuning:
    """The point with the highest criterion; the first one if several tie.

    The criterion is the mean over the sets of OOD images of the AUROC of ID images against them. weights: those of the
    sets in the mean, equal by default. draws: how often the images are drawn again (see `judged`); the points that are
    the best in at least a twentieth of the draws may be the best on other images, and the method averages over them
    if it can (`Detector.averaged`). train: training images that it is fitted on too.
    """
    if not points:
        raise InputError(f"The grid for {method.name} has no points; give at least one.")
    tried = [*points, {name: getattr(method, name) for name in points[0]}]
    share = torch.tensor([(weights or {}).get(name, 1.0) for name in folds[0].unknown], dtype=torch.float64)
    found = {i: rows @ share / share.sum() for i, rows in judged(method, tried, folds, head, train, draws).items()}
    default = found.pop(len(points), None)
    if not found:
        raise InputError(f"{method.name} could not be fitted at any of the {len(points)} points of the grid.")
    results = {i: float(rows[0]) for i, rows in found.items()}
    order = sorted(results, key=lambda i: (-results[i], i))
    shares = likely(torch.stack([found[i][1:] for i in order], 1)) if draws else [0.0] * len(order)
    chosen = method.averaged([points[i] for i, share in zip(order, shares) if i == order[0] or share >= LIKELY])
    trials = tuple((points[i], results[i]) for i in sorted(results))
    return Tuning(chosen, results[order[0]], None if default is None else float(default[0]), judged_by, trials)


def likely(drawn: Tensor) -> list[float]:
    """The share of the draws (B, points) in which each point is the best; points that tie share a draw."""
    best = (drawn == drawn.amax(1, keepdim=True)).double()
    shares: list[float] = (best / best.sum(1, keepdim=True)).mean(0).tolist()
    return shares


def judged(
    method: Detector,
    points: Sequence[Point],
    folds: Sequence[Fold],
    head: Head,
    train: Outputs | None,
    draws: int = 0,
) -> dict[int, Tensor]:
    """AUROC against each kind of outliers, the mean over the folds, for each point that can be fitted in all.

    (1 + draws, kinds): the AUROC itself, then in draws from the Bayesian bootstrap (D. B. Rubin, 1981): the images
    count as much as numbers from the flat Dirichlet distribution say, an outlier as much as the image it is made from.
    """
    found: dict[int, list[Tensor]] = {}
    more = () if train is None else (train,)
    generator = torch.Generator().manual_seed(0)
    for reference, known, unknown in folds:
        mine = _dirichlet(draws, len(known), generator)
        theirs = [mine if len(o) == len(known) else _dirichlet(draws, len(o), generator) for o in unknown.values()]
        for i, scores in method.sweep(points, reference, head, [known, *unknown.values()], *more):
            if scores is not None:
                # The largest finite number takes the place of +inf: AUROC depends on ranks alone.
                first, *others = (part.nan_to_num(posinf=torch.finfo(torch.float64).max) for part in scores)
                plain = torch.tensor([[auroc(first, other) for other in others]], dtype=torch.float64)
                drawn = [weighted_aurocs(first, other, mine, w) for other, w in zip(others, theirs, strict=True)]
                found.setdefault(i, []).append(torch.cat([plain, torch.stack(drawn, 1)]))
    return {i: torch.stack(parts).mean(0) for i, parts in found.items() if len(parts) == len(folds)}


def _dirichlet(draws: int, n: int, generator: torch.Generator) -> Tensor:
    """Weights of n images, positive and with the sum 1, uniform among all such, one row for each draw."""
    weights = torch.empty(draws, n, dtype=torch.float64).exponential_(generator=generator)
    return weights / weights.sum(1, keepdim=True)
