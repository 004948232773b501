"""DICE: only the strongest weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import FitsOn, check_percent
from adascale.detectors.classes import mean_features
from adascale.detectors.shaping import Shaping
from adascale.maths.quantiles import matrix_quantile


@dataclass
class DICE(Shaping):
    """Sun & Li, "DICE: leveraging sparsification for out-of-distribution detection", ECCV 2022.

    Contributions ``mean(a) * W`` over the training samples; weights whose contribution is at or below the
    ``percentile`` of all become 0; ``S = -E(W~ a + b)``. Indifferent to the sign of the features.
    """

    name: ClassVar[str] = "dice"
    summary: ClassVar[str] = "only the weights that contribute most"
    fits_on: ClassVar[FitsOn] = "train"
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"percentile": (10, 30, 50, 70, 90)}

    percentile: float = 90

    def _check_parameters(self) -> None:
        check_percent("percentile", self.percentile)

    def _fit(self, reference: Outputs, head: Head) -> None:
        contribution = mean_features(reference) * head.weight.double()
        self.weight_mask_ = contribution > matrix_quantile(contribution, self.percentile / 100)

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        return Head(self.head_.weight.double() * self.weight_mask_, self.head_.bias)(outputs.features)
