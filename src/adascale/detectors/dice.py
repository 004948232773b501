"""DICE: only the strongest weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.classes import MeanFeatures
from adascale.detectors.parameters import percent
from adascale.detectors.shaping import Shaping
from adascale.detectors.statistics import Course
from adascale.detectors.traits import Space
from adascale.maths.quantiles import matrix_quantile


@dataclass
class DICE(Shaping):
    """Sun & Li, "DICE: leveraging sparsification for out-of-distribution detection", ECCV 2022.

    Contributions ``mean(a) * W`` over the training samples; weights whose contribution is at or below the
    ``percentile`` of all become 0; ``S = -E(W~ a + b)``. Indifferent to the sign of the features.
    """

    name = "dice"
    summary = "only the weights that contribute most"
    fits_on = "train"
    search_space: ClassVar[Space] = {"percentile": (10, 30, 50, 70, 90)}

    percentile: float = percent(90)

    def _learn(self, head: Head) -> Course:
        contribution = (yield MeanFeatures()) * head.matrix
        self.weight_mask_ = contribution > matrix_quantile(contribution, self.percentile / 100)

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        return Head(self.head_.weight.double() * self.weight_mask_, self.head_.bias)(outputs.features)
