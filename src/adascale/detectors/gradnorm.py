"""GradNorm: size of the last layer's gradient, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.base import Detector


@dataclass
class GradNorm(Detector):
    """Huang et al., "On the importance of gradients for detecting distributional shifts in the wild", NeurIPS 2021.

    The L1 norm of the last weight's gradient of the loss against a target of 1 for every class, in closed form:
    ``S = -||a||_1 sum_c |C p_c - 1|``, ``p = softmax(z)``. No images are needed to fit it.
    """

    name = "gradnorm"
    summary = "L1 norm of the last layer's gradient"

    def _score(self, outputs: Outputs) -> Tensor:
        p = outputs.logits.double().softmax(1)
        return -outputs.features.double().abs().sum(1) * (p.shape[1] * p - 1).abs().sum(1)
