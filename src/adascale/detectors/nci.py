"""NCI: how close the features are to the weight vector of the predicted class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector, Space
from adascale.detectors.classes import mean_features
from adascale.maths.activations import row_norms, row_products


@dataclass
class NCI(Detector):
    """Liu & Qin, "Detecting out-of-distribution through the lens of neural collapse", CVPR 2025.

    With ``c`` the predicted class and ``mu`` the mean training feature,
    ``S = -(w_c . (a - mu) / ||a - mu|| + alpha ||a||_1)``; ``norm_weight`` is the paper's ``alpha``. Signed features
    are used as they are.
    """

    name = "nci"
    summary = "alignment of the centred features with the predicted class's weights"
    fits_on = "train"
    search_space: ClassVar[Space] = {"norm_weight": (0, 1e-5, 1e-4, 1e-3, 1e-2)}

    norm_weight: float = 1e-4

    def _fit(self, reference: Outputs, head: Head) -> None:
        self.mean_ = mean_features(reference)

    def _score(self, outputs: Outputs) -> Tensor:
        features = outputs.features.double()
        centred = features - self.mean_
        weight = self.head_.matrix[outputs.logits.argmax(1)]
        aligned = row_products(weight, centred) / row_norms(centred).clamp_min(1e-12)
        return -(aligned + self.norm_weight * features.abs().sum(1))
