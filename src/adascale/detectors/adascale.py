"""AdaSCALE-A, AdaSCALE-L, and the ablation that takes the shift itself as the score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from adascale.core.types import Outputs, Pixels, View, view_of
from adascale.detectors.adaptive import Adaptive, Values, activation_shift
from adascale.detectors.base import Detector, check_percent
from adascale.maths.activations import Floats, Ranking
from adascale.maths.stats import activation_scale


@dataclass
class AdaSCALE_A(Adaptive):
    """AdaSCALE-A: the activations are scaled, ``S = -E(W (a e^r) + b)``. See `Adaptive` for ``r``."""

    name: ClassVar[str] = "adascale_a"
    summary: ClassVar[str] = "activations scaled by exp(r), percentile adapted to each sample"

    def scale_of(self, ratio: Floats) -> Floats:
        return activation_scale(ratio)

    def line(self, logits: Values, bias: Values) -> tuple[Values, Values]:
        return logits - bias, bias


@dataclass
class AdaSCALE_L(Adaptive):
    """AdaSCALE-L: the logits are scaled, ``S = -E(z r^2)``. See `Adaptive` for ``r``."""

    name: ClassVar[str] = "adascale_l"
    summary: ClassVar[str] = "logits scaled by r^2, percentile adapted to each sample"

    def scale_of(self, ratio: Floats) -> Floats:
        return ratio * ratio

    def line(self, logits: Values, bias: Values) -> tuple[Values, Values]:
        return logits, 0 * bias


@dataclass
class ActivationShift(Detector):
    """The ablation "Q without scaling" of the AdaSCALE paper: ``S = Q``. Fitted on nothing."""

    name: ClassVar[str] = "activation_shift"
    summary: ClassVar[str] = "ablation: AdaSCALE's Q itself as the score"
    cost: ClassVar[Literal["light", "product", "bank", "heavy"]] = "product"
    passes: ClassVar[str] = "2 forward, 1 backward"

    k1: float = 1
    pixels: Pixels = "trivial"
    fraction: float = 0.05
    epsilon: float = 0.5
    seed: int = 0

    def _check_parameters(self) -> None:
        check_percent("k1", self.k1)
        View(self.pixels, self.fraction, self.epsilon, self.seed)

    @property
    def view(self) -> View:
        return view_of(self.pixels, self.fraction, self.epsilon, self.seed)

    @property
    def views(self) -> tuple[View, ...]:
        return (self.view,)

    def _score(self, outputs: Outputs) -> Tensor:
        return torch.from_numpy(activation_shift(Ranking(outputs.features), outputs.views[self.view], self.k1))
