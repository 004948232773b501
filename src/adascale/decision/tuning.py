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
from adascale.core.shards import Shards
from adascale.core.types import Head, Outputs
from adascale.detectors import Detector
from adascale.maths.metrics import auroc

FEWEST_IMAGES = 64
MOST_CHOSEN = 200
_CHOSEN_SHARE = 0.3
# Shuffled, mixed and masked images keep the detail of ID images, as near-OOD images do; blurred and zoomed ones, like
# far-OOD images, do not. Near and far count the same.
NEAR, FAR = ("shuffled", "mixed", "masked"), ("blurred", "zoomed")
KIND_WEIGHTS: Mapping[str, float] = {kind: 1 / len(side) for side in (NEAR, FAR) for kind in side}
TOLERANCE = 0.01  # of AUROC: points this close to the best are averaged over
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
    """Every combination of values that the method accepts. ``space``: by default the method's own search space.

    For example:

        >>> grid(detectors.get("knn")(), {"k": (10, 20, -1)})  # -1 is no number of neighbours
        [{'k': 10}, {'k': 20}]
    """
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

    reference: Outputs | Shards | None
    known: Outputs
    unknown: Mapping[str, Outputs]


def search_grid(
    method: Detector,
    points: Sequence[Point],
    folds: Sequence[Fold],
    head: Head,
    judged_by: str,
    *,
    train: Outputs | Shards | None = None,
    weights: Mapping[str, float] | None = None,
    tolerance: float = 0.0,
) -> Tuning:
    """The point with the highest criterion; the first one if several tie.

    The criterion is the mean over the sets of OOD images of the AUROC of ID images against them. weights: those of the
    sets in the mean, equal by default. tolerance: the points whose criterion is this close to the highest count as
    equally good, and the method averages over them if it can (`Detector.averaged`). train: training images that it is
    fitted on too.
    """
    if not points:
        raise InputError(f"The grid for {method.name} has no points; give at least one.")
    tried = [*points, {name: getattr(method, name) for name in points[0]}]
    share = torch.tensor([(weights or {}).get(name, 1.0) for name in folds[0].unknown], dtype=torch.float64)
    aurocs = judged(method, tried, folds, head, train)
    results = {i: float(found @ share / share.sum()) for i, found in aurocs.items()}
    default = results.pop(len(points), None)
    if not results:
        raise InputError(f"{method.name} could not be fitted at any of the {len(points)} points of the grid.")
    order = sorted(results, key=lambda i: (-results[i], i))
    top = results[order[0]]
    least = top - tolerance - 1e-12  # AUROCs are fractions: a difference may be the tolerance itself, up to rounding
    chosen = method.averaged([points[i] for i in order if results[i] >= least])
    trials = tuple((points[i], results[i]) for i in sorted(results))
    return Tuning(chosen, top, default, judged_by, trials)


def judged(
    method: Detector, points: Sequence[Point], folds: Sequence[Fold], head: Head, train: Outputs | Shards | None
) -> dict[int, Tensor]:
    """AUROC against each kind of outliers, the mean over the folds, for each point that can be fitted in all."""
    found: dict[int, list[Tensor]] = {}
    more = () if train is None else (train,)
    for reference, known, unknown in folds:
        for i, scores in method.sweep(points, reference, head, [known, *unknown.values()], *more):
            if scores is not None:
                # The largest finite number takes the place of +inf: AUROC depends on ranks alone.
                first, *others = (part.nan_to_num(posinf=torch.finfo(torch.float64).max) for part in scores)
                aurocs = [auroc(first, other) for other in others]
                found.setdefault(i, []).append(torch.tensor(aurocs, dtype=torch.float64))
    return {i: torch.stack(parts).mean(0) for i, parts in found.items() if len(parts) == len(folds)}
