"""Which parameters to use: a grid on extracted outputs, judged by AUROC, with or without OOD data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs, View
from adascale.detectors import Detector
from adascale.images.outliers import WEIGHTS
from adascale.maths.conformal import images_needed
from adascale.maths.metrics import auroc
from adascale.maths.split import split

FEWEST_IMAGES = 64
MOST_CHOSEN = 200
TOLERANCE = 0.0075  # of a mean AUROC on made-up outliers: differences below mean little for real ones
_CHOSEN_SHARE = 0.3
_PERCENTILES = (60, 65, 70, 75, 80, 85, 90, 95, 99)
# The grids of the AdaSCALE paper by name; `pairs` is ours: with equality, which is SCALE or LTS.
GRIDS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "one-knob": tuple({"p_min": 60, "p_max": p} for p in _PERCENTILES[1:]),
    "paper": tuple({"p_min": a, "p_max": b} for a in _PERCENTILES for b in _PERCENTILES if a < b),
    "pairs": tuple({"p_min": a, "p_max": b} for a in _PERCENTILES for b in _PERCENTILES if a <= b),
}

Point = Mapping[str, Any]


@dataclass(frozen=True)
class Tuning:
    """What won, how it was judged, and all that was tried (point, mean AUROC), in the order of the grid.

    default_auroc: of the parameters that would have been used otherwise, by the same judge.
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
    """Every combination that the method accepts; ``space`` is by default its own search space."""
    space = method.search_space if space is None else space
    if not space:
        raise InputError(f"{method.name} has nothing left to tune; give a grid, or set fewer of its parameters.")
    points: list[Point] = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    usable = [point for point in points if _accepted(method, point)]
    if not usable:
        raise InputError(f"{method.name} accepts none of the {len(points)} points of the grid {dict(space)}.")
    return usable


def views_of(method: Detector, points: Iterable[Point]) -> list[View]:
    """The views that a grid needs, each once."""
    return list(dict.fromkeys(view for point in points for view in replace(method, **point).views))


def search(
    method: Detector,
    points: Sequence[Point],
    reference: Outputs | None,
    head: Head,
    known: Outputs,
    unknown: Mapping[str, Outputs],
    judged_by: str,
    *,
    weights: Mapping[str, float] | None = None,
    tolerance: float = 0.0,
) -> Tuning:
    """The point with the highest mean AUROC of ``known`` against each set of ``unknown``; of equals the first.

    ``reference``, what the method is fitted on, should hold none of ``known``. ``weights``: of the sets, by default
    equal. ``tolerance``: points this close to the best count as good as it, and the one in their middle is taken.
    """
    share = torch.tensor([(weights or {}).get(name, 1.0) for name in unknown], dtype=torch.float64)
    results: dict[int, float] = {}
    tried = [*points, {name: getattr(method, name) for name in points[0]}]
    for i, scores in method.sweep(tried, reference, head, [known, *unknown.values()]):
        if scores is not None:
            finite = [_finite(part) for part in scores]
            aurocs = torch.tensor([auroc(finite[0], other) for other in finite[1:]], dtype=torch.float64)
            results[i] = float(aurocs @ share / share.sum())
    default = results.pop(len(points), None)
    if not results:
        raise InputError(f"{method.name} could not be fitted at any of the {len(points)} points of the grid.")
    top = max(results.values())
    chosen = _middle(points, [i for i in sorted(results) if results[i] >= top - tolerance], results)
    trials = tuple((points[i], results[i]) for i in sorted(results))
    return Tuning(points[chosen], results[chosen], default, judged_by, trials)


def search_made_up(
    method: Detector,
    points: Sequence[Point],
    reference: Outputs | None,
    head: Head,
    known: Outputs,
    outliers: Mapping[str, Outputs],
) -> Tuning:
    """The same against outliers made from ``known`` itself."""
    by = f"{len(known)} ID images against outliers made from them ({', '.join(outliers)})"
    return search(method, points, reference, head, known, outliers, by, weights=WEIGHTS, tolerance=TOLERANCE)


def _middle(points: Sequence[Point], good: Sequence[int], results: Mapping[int, float]) -> int:
    """Of these points the one nearest to their mean, each parameter in units of its range over the grid."""
    best = max(good, key=lambda i: (results[i], -i))
    if not all(isinstance(value, int | float) for point in points for value in point.values()):
        return best
    values = torch.tensor([list(point.values()) for point in points], dtype=torch.float64)
    values = values / (values.amax(0) - values.amin(0)).clamp_min(1e-300)
    distance = (values - values[list(good)].mean(0)).square().sum(1)
    nearest = min(float(distance[i]) for i in good)
    return max((i for i in good if float(distance[i]) <= nearest + 1e-12), key=lambda i: (results[i], -i))


def chosen_count(n: int) -> int:
    """How many of n ID images are set aside to choose parameters on; none of fewer than 64."""
    return min(MOST_CHOSEN, int(n * _CHOSEN_SHARE)) if n >= FEWEST_IMAGES else 0


@dataclass(frozen=True)
class Plan:
    """Whether a detector's method will be tuned on its ID images, and on which of them.

    given: parameters that the user fixed. tune: False never; True over the rest of the search space; None does so for
    methods that are tuned by default, if none of their search space was fixed, and if enough images are left to promise
    ``alpha``. seed, share: of the split.
    """

    method: Detector
    given: frozenset[str]
    tune: bool | None
    seed: int
    share: float
    alpha: float

    @property
    def wanted(self) -> bool:
        if self.tune is None:
            return self.method.tuned_by_default and not self.given & set(self.method.search_space)
        return self.tune and bool(set(self.method.search_space) - self.given)

    @property
    def points(self) -> list[Point]:
        return grid(self.method, {k: v for k, v in self.method.search_space.items() if k not in self.given})

    @property
    def views(self) -> list[View]:
        """What has to be extracted."""
        return views_of(self.method, self.points if self.wanted else [{}])

    def chosen(self, n: int) -> list[int]:
        """Which of n images outliers are to be made from; none where nothing will be tuned."""
        if not self.wanted:
            return []
        parts = split(n, self.seed, self.share, chosen_count(n))
        if self.tune and not len(parts.chosen):
            raise InputError(f"{n} images are too few to tune on; give at least {FEWEST_IMAGES}, or do not ask for it.")
        enough = self.tune or len(parts.held_out) >= images_needed(self.alpha)
        indices: list[int] = parts.chosen.tolist() if enough else []
        return indices

    def why_not(self, n: int) -> str:
        """Where the parameters come from if not from tuning."""
        if not self.wanted:
            return ("as given" if self.given else "defaults") + ("; nothing is left to tune" if self.tune else "")
        if n < FEWEST_IMAGES:
            return f"defaults; {n} images are too few to tune on ({FEWEST_IMAGES})"
        if not self.chosen(n):
            return f"defaults; tuning would leave too few of {n} images to promise {100 * self.alpha:.3g} %"
        return "defaults; no outliers to tune on (the images differ in size, or none were given)"


def _accepted(method: Detector, point: Point) -> bool:
    try:
        replace(method, **point)
    except InputError:
        return False
    return True


def _finite(scores: Tensor) -> Tensor:
    """Ranks are all that matters here: what is infinitely OOD becomes more OOD than all others."""
    return scores.nan_to_num(posinf=torch.finfo(torch.float64).max)
