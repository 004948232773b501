"""LTS: logits times ``r^2``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.parameters import percent
from adascale.detectors.shaping import Shaping
from adascale.detectors.traits import Space
from adascale.maths import traced
from adascale.maths.activations import fixed_ratio


@dataclass
class LTS(Shaping):
    """Djurisic et al., "Logit scaling for out-of-distribution detection", 2024.

    ``r = sum(ReLU(a)) / (sum of the k largest of ReLU(a))``, ``k`` the entries above ``percentile``;
    ``S = -E(z r^2)``. No images are needed to fit it. Rows without a positive activation have ``r = 1``.
    """

    name = "lts"
    summary = "logits scaled by r^2, r from one fixed percentile"
    search_space: ClassVar[Space] = {"percentile": (65, 70, 75, 80, 85, 90, 95)}
    signed_features = "relu"

    percentile: float = percent(95)

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        ratio = fixed_ratio(outputs.features, self.percentile)
        return outputs.logits.double() * ratio.square()[:, None]

    def formula_logits(self, outputs: Outputs) -> Tensor:
        ratio = traced.fixed_ratio(traced.ranked(outputs.features), self.percentile)
        return outputs.logits.double() * ratio.square()[:, None]
