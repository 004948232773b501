"""VRA: small activations to zero, large ones capped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.classes import feature_quantiles
from adascale.detectors.parameters import percent
from adascale.detectors.shaping import Shaping
from adascale.detectors.statistics import Course
from adascale.detectors.traits import Space


@dataclass
class VRA(Shaping):
    """Xu et al., "VRA: variational rectified activation for out-of-distribution detection", NeurIPS 2023.

    ``a~ = 0`` where ``a <= alpha``, ``a`` between, ``beta`` above; ``S = -E(W a~ + b)``. ``alpha``, ``beta`` = the
    percentiles ``low`` and ``high`` of all training features pooled. (OpenOOD's VRA clips to [alpha, beta]
    instead, which *raises* small values; that is another function.)
    """

    name = "vra"
    summary = "small activations removed, large ones capped"
    signed_features = "as is"
    fits_on = "train"
    search_space: ClassVar[Space] = {"low": (50, 60, 70), "high": (90, 95, 99)}

    low: float = percent(60)
    high: float = percent(95)

    def _check_parameters(self) -> None:
        if self.low >= self.high:
            raise InputError(f"low={self.low} is not below high={self.high}; it must be.")

    def _learn(self, head: Head) -> Course:
        ends = yield from feature_quantiles([self.low / 100, self.high / 100])
        self.alpha_, self.beta_ = (torch.tensor(end, dtype=torch.float64) for end in ends)

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        features = outputs.features.double()
        return self.head_(torch.where(features > self.alpha_, features.clamp_max(self.beta_), 0.0))
