"""The search for parameters: a grid on extracted outputs, judged by AUROC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import torch

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors import Detector
from adascale.maths.metrics import auroc

FEWEST_IMAGES = 64
MOST_CHOSEN = 200
_CHOSEN_SHARE = 0.3
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
    """The parameters that were chosen, how they were judged, and every trial (point, mean AUROC) in grid order.

    default_auroc: the AUROC of the parameters that would have been used otherwise, judged in the same way.
    """

    chosen: Point
    auroc: float
    default_auroc: float | None
    judged_by: str
    trials: tuple[tuple[Point, float], ...] = ()

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.chosen.items())
        instead = "" if self.default_auroc is None else f", the default {100 * self.default_auroc:.2f} %"
        return (
            f"{values}: chosen from {len(self.trials)} by AUROC ({100 * self.auroc:.2f} %{instead}) on {self.judged_by}"
        )


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


def search_grid(
    method: Detector,
    points: Sequence[Point],
    reference: Outputs | None,
    head: Head,
    known: Outputs,
    unknown: Mapping[str, Outputs],
    judged_by: str,
    *,
    train: Outputs | None = None,
    weights: Mapping[str, float] | None = None,
    tolerance: float = 0.0,
) -> Tuning:
    """The point with the highest mean AUROC of ``known`` against each set of ``unknown``; the first one if several tie.

    reference, train: what the method is fitted on; neither should hold any of ``known``. weights: those of the sets in
    the mean, equal by default. tolerance: points this close to the best count as equally good, and the one nearest to
    their middle is chosen.
    """
    if not points:
        raise InputError(f"The grid for {method.name} has no points; give at least one.")
    share = torch.tensor([(weights or {}).get(name, 1.0) for name in unknown], dtype=torch.float64)
    results: dict[int, float] = {}
    tried = [*points, {name: getattr(method, name) for name in points[0]}]
    more = () if train is None else (train,)
    for i, scores in method.sweep(tried, reference, head, [known, *unknown.values()], *more):
        if scores is not None:
            # The largest finite number takes the place of +inf: AUROC depends on ranks alone.
            first, *others = (part.nan_to_num(posinf=torch.finfo(torch.float64).max) for part in scores)
            aurocs = torch.tensor([auroc(first, other) for other in others], dtype=torch.float64)
            results[i] = float(aurocs @ share / share.sum())
    default = results.pop(len(points), None)
    if not results:
        raise InputError(f"{method.name} could not be fitted at any of the {len(points)} points of the grid.")
    top = max(results.values())
    chosen = _middle(points, [i for i in sorted(results) if results[i] >= top - tolerance], results)
    trials = tuple((points[i], results[i]) for i in sorted(results))
    return Tuning(points[chosen], results[chosen], default, judged_by, trials)


def _middle(points: Sequence[Point], good: Sequence[int], results: Mapping[int, float]) -> int:
    """The point among ``good`` that is nearest to their mean, each parameter in units of its range over the grid."""
    nearest = list(good)
    if all(isinstance(value, int | float) for point in points for value in point.values()):
        values = torch.tensor([list(point.values()) for point in points], dtype=torch.float64)
        values = values / (values.amax(0) - values.amin(0)).clamp_min(1e-300)
        distance = (values - values[nearest].mean(0)).square().sum(1).tolist()
        nearest = [i for i in good if distance[i] <= min(distance[k] for k in good) + 1e-12]
    return max(nearest, key=lambda i: (results[i], -i))
