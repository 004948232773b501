"""BFAct: a smooth clip, the shape of a Butterworth filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.classes import feature_quantiles
from adascale.detectors.parameters import number, percent
from adascale.detectors.shaping import Shaping
from adascale.detectors.statistics import Course
from adascale.detectors.traits import Space


@dataclass
class BFAct(Shaping):
    """Kong & Li, "BFAct: out-of-distribution detection with Butterworth filter rectified activations", 2022.

    ``c`` = the ``percentile`` of all training features pooled, ``N`` = ``order``;
    ``g(a) = a / sqrt(1 + (a / c)^(2N))``, ``S = -E(W g(a) + b)``. Negative features are damped like positive ones.
    """

    name = "bfact"
    summary = "activations through a Butterworth filter"
    signed_features = "as is"
    fits_on = "train"
    search_space: ClassVar[Space] = {"percentile": (85, 90, 95, 99), "order": (1, 2, 3)}

    percentile: float = percent(95)
    order: int = number(2, least=1)

    def _learn(self, head: Head) -> Course:
        (cut,) = yield from feature_quantiles([self.percentile / 100])
        if cut <= 0:
            raise InputError(
                f"The {self.percentile:g}th percentile of the features is {cut:g}; BFAct needs it above 0."
            )
        self.cut_ = torch.tensor(cut, dtype=torch.float64)

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        features = outputs.features.double()
        return self.head_(features / (1 + (features / self.cut_) ** (2 * self.order)).sqrt())
