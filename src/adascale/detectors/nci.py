"""NCI: how close the features are to the weight vector of the predicted class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import MeanFeatures
from adascale.detectors.statistics import Course
from adascale.detectors.traits import Space
from adascale.maths.activations import row_norms
from adascale.maths.pieces import Buffer, centred_pieces, predicted, row_products


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
    in_pieces = True
    shows_infinite = ("features",)
    search_space: ClassVar[Space] = {"norm_weight": (0, 1e-5, 1e-4, 1e-3, 1e-2)}

    norm_weight: float = 1e-4

    def _learn(self, head: Head) -> Course:
        self.mean_ = yield MeanFeatures()

    def _score(self, outputs: Outputs) -> Tensor:
        aligned, length, total = (torch.empty(len(outputs), dtype=torch.float64) for _ in range(3))
        features, weight, index = outputs.features, self.head_.weight.detach(), predicted(outputs.logits)
        chosen, sizes = Buffer(features, weight.dtype), Buffer(features, features.dtype)
        for rows, centred in centred_pieces(features, self.mean_):
            torch.linalg.vector_norm(centred, dim=1, out=length[rows])
            row_products(centred, torch.index_select(weight, 0, index[rows], out=chosen[rows]), aligned[rows])
            torch.sum(torch.abs(features[rows], out=sizes[rows]), 1, dtype=torch.float64, out=total[rows])
        return self._joined(aligned, length, total)

    def formula(self, outputs: Outputs) -> Tensor:
        features = outputs.features.double()
        centred, weight = features - self.mean_, self.head_.matrix[outputs.logits.argmax(1)]
        return self._joined((weight * centred).sum(1), row_norms(centred), features.abs().sum(1))

    def _joined(self, aligned: Tensor, length: Tensor, total: Tensor) -> Tensor:
        return -(aligned / length.clamp_min(1e-12) + self.norm_weight * total)
