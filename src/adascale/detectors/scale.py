"""SCALE: all activations times ``exp(r)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.parameters import percent
from adascale.detectors.shaping import Rectified
from adascale.detectors.traits import Space, warn_if_signed
from adascale.maths import traced
from adascale.maths.activations import fixed_ratio, scaled_activation_logits


@dataclass
class SCALE(Rectified):
    """Xu et al., "Scaling for training time and post-hoc out-of-distribution detection enhancement", ICLR 2024.

    ``r = (sum of a) / (sum of its k largest)``, ``k`` the entries above ``percentile`` (the paper's ``p``);
    ``S = -E(W (a e^r) + b)``. No images are needed to fit it.

    The definition takes ``a`` as it is (``relu=False``): on signed features the sums cancel and ``r`` is noise;
    ``relu=True`` takes ``r`` from ``max(a, 0)`` instead, and so does the default where `fit` sees a negative feature
    (see `Rectified`). Rows without a positive activation have ``r = 1`` (reference codes divide 0 by 0).
    """

    name = "scale"
    summary = "activations scaled by exp(r), r from one fixed percentile"
    search_space: ClassVar[Space] = {"percentile": (65, 70, 75, 80, 85, 90, 95)}
    signed_features = "as is"

    percentile: float = percent(85)

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        relu = self.rectifies
        if not relu:
            warn_if_signed("SCALE", outputs.features)
        ratio = fixed_ratio(outputs.features, self.percentile, relu)
        return scaled_activation_logits(outputs.logits, self.head_.offset, ratio)

    def formula_logits(self, outputs: Outputs) -> Tensor:
        ratio = traced.fixed_ratio(traced.ranked(outputs.features), self.percentile, self.rectifies)
        return (
            traced.activation_scale(ratio)[:, None] * (outputs.logits.double() - self.head_.offset) + self.head_.offset
        )
