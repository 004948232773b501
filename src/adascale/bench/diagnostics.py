"""AdaSCALE's own quantities over a set, batch by batch, which the figures of its paper show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from adascale.bench.results import Profile
from adascale.core.types import Outputs
from adascale.detectors.adaptive import Adaptive
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


def profiled_part(method: Detector) -> Detector | None:
    """The first part of a fitted method whose diagnostics hold what a `Profile` shows: itself, or a member of it."""
    return next((part for part in method.parts.values() if {*_VALUES, *_BY_RANK} <= set(part.diagnosed)), None)


def title(label: str, part: Detector, method: Detector) -> str:
    """The name of a part of the method that stands in the tables under this label."""
    return label if part is method else f"{part.name}, a member of {label}"


def setting(part: Detector) -> str:
    """The parameters of an AdaSCALE variant that its profile depends on, in words; of other methods nothing."""
    if not isinstance(part, Adaptive):
        return ""
    weights = f"λ = {part.lam:g}, k1 = {part.k1:g} %, k2 = {part.k2:g} %"
    statistic = "" if part.statistic == "q_prime" else f"{part.statistic} in the place of Q\N{PRIME}"
    return ", ".join(filter(None, [_percentiles(part), weights, statistic, _moved(part)]))


def _moved(part: Adaptive) -> str:
    share = f"{100 * part.fraction:g} % of the channel values ({part.pixels})"
    where = {"all": "all channel values", "largest": "the channel value with the largest gradient"}
    return f"ε = {part.epsilon:g} on {where.get(part.pixels, share)}"


def _percentiles(part: Adaptive) -> str:
    lows, highs = zip(*part.pairs, strict=True)
    if len(part.pairs) == 1:
        return f"p_min = {part.p_min:g}, p_max = {part.p_max:g}"
    return f"mean over {len(part.pairs)} pairs of p_min ({_span(lows)}) and p_max ({_span(highs)})"


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


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
