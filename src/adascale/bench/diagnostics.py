"""AdaSCALE's own quantities over a set, batch by batch, which the figures of its paper show."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from adascale.bench.results import Profile
from adascale.core.types import Outputs
from adascale.detectors.base import Detector
from adascale.detectors.rows import finite_rows

_PLACES = 100
_VALUES = ("q", "q_prime", "percentile", "ratio")
_BY_RANK = ("shift_by_rank", "perturbed_by_rank")


def mean_ratio(values: Tensor, reference: Tensor) -> float | None:
    """``Q_OOD / Q_ID`` and the like: the mean of the finite values over that of the reference; None if undefined."""
    above, below = (part[part.isfinite()].double().mean() for part in (values, reference))
    ratio = above / below
    return float(ratio) if ratio.isfinite() else None


def has_profile(method: Detector) -> bool:
    """Whether the method's diagnostics hold what a `Profile` shows."""
    return {*_VALUES, *_BY_RANK} <= set(method.diagnosed)


class Profiler:
    """Collects a `Profile` from a fitted method's diagnostics; images with NaN or infinite activations are left out."""

    def __init__(self, method: Detector, most: int) -> None:
        self.method, self.images = method, 0
        self._sums: list[Tensor] = []
        self._values = torch.empty(4, most, dtype=torch.float64)  # in one piece, as the scores are (bench.run)

    def add(self, outputs: Outputs) -> None:
        known = {*outputs.views, *outputs.taps}
        finite = finite_rows(outputs, [need for need in self.method.wants if need in known])
        seen = self.method.diagnostics(outputs if finite.all() else outputs[finite])
        if not seen:
            return
        size = outputs.features.shape[1]
        places = self._places(size)
        shift, level = (seen[name][:, places].double() for name in _BY_RANK)
        sums = [part.sum(0) for part in (shift, shift.square(), level, level.square())]
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)] if self._sums else sums
        rows = slice(self.images, self.images + len(shift))
        self.images += len(shift)
        for place, name in enumerate(_VALUES):
            self._values[place, rows] = seen[name]
        self._ranks = (places + 1).double() * 100 / size

    def profile(self) -> Profile | None:
        """None if no image was seen."""
        if not self.images:
            return None
        means = [part / self.images for part in self._sums]
        shift_std, level_std = ((square - mean.square()).clamp_min(0).sqrt() for mean, square in (means[:2], means[2:]))
        return Profile(self._ranks, means[0], shift_std, means[2], level_std, *self._values[:, : self.images])

    @staticmethod
    def _places(size: int) -> Tensor:
        """Dense among the strongest activations, since the figures have a logarithmic axis."""
        ranks = torch.logspace(0, math.log10(size), _PLACES, dtype=torch.float64).round().long()
        return torch.tensor(sorted(set(ranks.tolist()))) - 1
