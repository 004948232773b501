"""AdaSCALE's own quantities over a set, batch by batch: what the figures of its paper show."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from adascale.bench.results import Profile
from adascale.core.types import Outputs
from adascale.detectors.adaptive import Adaptive, activation_shift
from adascale.maths.activations import Ranking, descending

_PLACES = 100


def mean_ratio(values: Tensor, reference: Tensor) -> float | None:
    """``Q_OOD / Q_ID`` and the like: the mean of the finite values over that of the reference; None if undefined."""
    above, below = (part[part.isfinite()].double().mean() for part in (values, reference))
    ratio = above / below
    return float(ratio) if ratio.isfinite() else None


class Profiler:
    """Collects a `Profile` with a fitted method; rows with NaN or infinite activations are left out."""

    def __init__(self, method: Adaptive, most: int) -> None:
        self.method, self.images = method, 0
        self._sums: list[Tensor] = []
        self._values = torch.empty(4, most, dtype=torch.float64)  # one piece: see benchmark._Scored

    def add(self, outputs: Outputs) -> None:
        view, size = self.method.view, outputs.features.shape[1]
        if view not in outputs.views:
            return
        perturbed = outputs.views[view]
        finite = (outputs.features.sum(1) + perturbed.sum(1) + outputs.logits.sum(1)).isfinite()
        outputs = outputs if finite.all() else outputs[finite]
        ranked, order = descending(outputs.features)
        moved = outputs.views[view].gather(1, order)
        places = self._places(size)
        shift, level = (moved - ranked).abs()[:, places].double(), moved[:, places].double()
        sums = [part.sum(0) for part in (shift, shift.square(), level, level.square())]
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)] if self._sums else sums
        rows = slice(self.images, self.images + len(ranked))
        self.images += len(ranked)
        ranking = Ranking(outputs.features)
        shift_sum = activation_shift(ranking, outputs.views[view], self.method.k1)
        self._values[0, rows] = torch.from_numpy(shift_sum)
        self._values[1, rows] = self.method.shift_statistic(outputs)
        self._values[2, rows] = self.method.percentiles(outputs)
        self._values[3, rows] = self.method.ratios(outputs)
        self._ranks = (places + 1).double() * 100 / size

    def profile(self) -> Profile | None:
        """None where nothing was seen."""
        if not self.images:
            return None
        means = [part / self.images for part in self._sums]
        shift_std, level_std = ((square - mean.square()).clamp_min(0).sqrt() for mean, square in (means[:2], means[2:]))
        return Profile(self._ranks, means[0], shift_std, means[2], level_std, *self._values[:, : self.images])

    @staticmethod
    def _places(size: int) -> Tensor:
        """Dense among the strongest, where the figures are drawn on a logarithmic axis."""
        ranks = torch.logspace(0, math.log10(size), _PLACES, dtype=torch.float64).round().long()
        return torch.tensor(sorted(set(ranks.tolist()))) - 1
