"""ReAct: activations clipped from above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.classes import feature_quantiles
from adascale.detectors.parameters import percent
from adascale.detectors.shaping import Shaping
from adascale.detectors.statistics import Course
from adascale.detectors.traits import Space


@dataclass
class ReAct(Shaping):
    """Sun et al., "ReAct: out-of-distribution detection with rectified activations", NeurIPS 2021.

    ``c`` = the ``percentile`` of all ID feature values pooled; ``S = -E(W min(a, c) + b)``. A few ID samples
    suffice to fit it. Negative features pass unchanged.
    """

    name = "react"
    summary = "activations clipped at a percentile of the ID ones"
    signed_features = "as is"
    fits_on = "val"
    search_space: ClassVar[Space] = {"percentile": (85, 90, 95, 99)}

    percentile: float = percent(90)

    def _learn(self, head: Head) -> Course:
        (threshold,) = yield from feature_quantiles([self.percentile / 100])
        self.threshold_ = torch.tensor(threshold, dtype=torch.float64)

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        return self.head_(outputs.features.double().clamp_max(self.threshold_))
