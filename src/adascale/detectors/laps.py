"""LAPS: activations clipped to a range of their own, shifted by how active they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.classes import FeatureDeviations, MeanFeatures
from adascale.detectors.parameters import number
from adascale.detectors.shaping import Shaping
from adascale.detectors.statistics import Course
from adascale.detectors.traits import Space


@dataclass
class LAPS(Shaping):
    """He et al., "Exploring channel-aware typical features for out-of-distribution detection", AAAI 2024.

    With ``mu``, ``sigma`` the mean and deviation of each feature over the training samples and ``m = mean(mu) - mu``,
    ``a~`` = ``a`` clipped to ``[mu - (1.5 - 13 m) sigma, mu + (1.5 + 13 m) sigma]``; ``S = -E(W a~ + b)``. ``width`` is
    the 1.5, ``shift`` the 13.
    """

    name = "laps"
    summary = "activations clipped to the typical range of each feature"
    signed_features = "as is"
    fits_on = "train"
    search_space: ClassVar[Space] = {"width": (1.0, 1.5, 2.0), "shift": (0, 5, 13, 20)}

    width: float = number(1.5, above=0)
    shift: float = number(13, least=0)

    def _learn(self, head: Head) -> Course:
        mean = yield MeanFeatures()
        deviation = yield FeatureDeviations(mean)
        centre = mean + self.shift * (mean.mean() - mean) * deviation
        self.low_, self.high_ = centre - self.width * deviation, centre + self.width * deviation

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        # Comparisons in place of a clamp: the exporter's optimiser breaks some graphs with clamps between tensors.
        features = outputs.features.double()
        raised = torch.where(features < self.low_, self.low_, features)
        return self.head_(torch.where(raised > self.high_, self.high_, raised))
