"""BFAct: a smooth clip, the shape of a Butterworth filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import FitsOn, check_count, check_percent, feature_chunks
from adascale.detectors.shaping import Shaping
from adascale.maths.quantiles import quantiles


@dataclass
class BFAct(Shaping):
    """Kong & Li, "BFAct: out-of-distribution detection with Butterworth filter rectified activations", 2022.

    ``c`` = the ``percentile`` of all training features pooled, ``N`` = ``order``;
    ``g(a) = a / sqrt(1 + (a / c)^(2N))``, ``S = -E(W g(a) + b)``. Negative features are damped like positive ones.
    """

    name: ClassVar[str] = "bfact"
    summary: ClassVar[str] = "activations through a Butterworth filter"
    signed_features: ClassVar[Literal["any", "relu", "as is"]] = "as is"
    fits_on: ClassVar[FitsOn] = "train"
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"percentile": (85, 90, 95, 99), "order": (1, 2, 3)}

    percentile: float = 95
    order: int = 2

    def _check_parameters(self) -> None:
        check_percent("percentile", self.percentile)
        check_count("order", self.order)

    def _fit(self, reference: Outputs, head: Head) -> None:
        (cut,) = quantiles(partial(feature_chunks, reference), [self.percentile / 100])
        if cut <= 0:
            raise InputError(
                f"The {self.percentile:g}th percentile of the features is {cut:g}; BFAct needs it above 0."
            )
        self.cut_ = torch.tensor(cut, dtype=torch.float64)

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        features = outputs.features.double()
        return self.head_(features / (1 + (features / self.cut_) ** (2 * self.order)).sqrt())
