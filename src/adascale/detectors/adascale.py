"""AdaSCALE-A, AdaSCALE-L, and the ablation that takes the shift itself as the score."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.types import Outputs, Pixels, View, view_of
from adascale.detectors.adaptive import Adaptive
from adascale.detectors.base import Detector
from adascale.detectors.parameters import number, percent
from adascale.detectors.shift import Values, activation_shift
from adascale.maths import traced
from adascale.maths.activations import Floats, Ranking, activation_scale


@dataclass
class AdaSCALE_A(Adaptive):
    """AdaSCALE-A: the activations are scaled, ``S = -E(W (a e^r) + b)``. See `Adaptive` for ``r``."""

    name = "adascale_a"
    summary = "activations scaled by exp(r), percentile adapted to each sample"

    def scale_of(self, ratio: Floats) -> Floats:
        return activation_scale(ratio)

    def traced_scale(self, ratio: Tensor) -> Tensor:
        return traced.activation_scale(ratio)

    def line(self, logits: Values, bias: Values) -> tuple[Values, Values]:
        return logits - bias, bias


@dataclass
class AdaSCALE_L(Adaptive):
    """AdaSCALE-L: the logits are scaled, ``S = -E(z r^2)``. See `Adaptive` for ``r``."""

    name = "adascale_l"
    summary = "logits scaled by r^2, percentile adapted to each sample"

    def scale_of(self, ratio: Floats) -> Floats:
        return ratio * ratio

    def traced_scale(self, ratio: Tensor) -> Tensor:
        return ratio * ratio

    def line(self, logits: Values, bias: Values) -> tuple[Values, Values]:
        return logits, 0 * bias


@dataclass
class ActivationShift(Detector):
    """The ablation "Q without scaling" of the AdaSCALE paper: ``S = Q``. No images are needed to fit it."""

    name = "activation_shift"
    summary = "ablation: AdaSCALE's Q itself as the score"
    cost = "product"
    passes = "2 forward, 1 backward"

    k1: float = percent(1, above=0)
    pixels: Pixels = "trivial"
    fraction: float = number(0.05, above=0, most=1, kind="a share")
    epsilon: float = 0.5
    seed: int = 0

    @property
    def view(self) -> View:
        return view_of(self.pixels, self.fraction, self.epsilon, self.seed)

    @property
    def views(self) -> tuple[View, ...]:
        return (self.view,)

    def _score(self, outputs: Outputs) -> Tensor:
        return torch.from_numpy(activation_shift(Ranking(outputs.features), outputs.views[self.view], self.k1))

    def formula(self, outputs: Outputs) -> Tensor:
        moved = (outputs.views[self.view].double() - outputs.features).abs()
        return traced.masked_sum(moved, traced.strongest(outputs.features, traced.ranked(outputs.features), self.k1))
