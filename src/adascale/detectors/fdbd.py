"""fDBD: how far the features are from the decision boundaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import MeanFeatures
from adascale.detectors.statistics import Course
from adascale.detectors.traits import Space
from adascale.maths.pieces import centred_lengths, predicted, products_with


@dataclass
class FDBD(Detector):
    """Liu & Qin, "Fast decision boundary based out-of-distribution detector", ICML 2024.

    With ``y`` the predicted class and ``mu`` the mean training feature, distances to the boundaries of ``y`` with every
    other class, summed, over the distance to the mean: ``S = -sum_c (|z_y - z_c| / ||w_y - w_c||) / ||a - mu||``;
    ``normaliser="norm"`` divides by ``||a||`` instead.
    """

    name = "fdbd"
    summary = "distance to the decision boundaries"
    fits_on = "train"
    in_pieces = True
    search_space: ClassVar[Space] = {"normaliser": ("distance", "norm")}

    normaliser: Literal["distance", "norm"] = "distance"

    def _learn(self, head: Head) -> Course:
        self.mean_ = yield MeanFeatures()
        between = head.distances
        self.inverse_ = torch.where(between > 0, 1 / between.clamp_min(1e-300), 0.0)  # equal weights have no boundary

    def _score(self, outputs: Outputs) -> Tensor:
        total, length = self._gaps(outputs.logits), self._lengths(outputs.features)
        return torch.where(length > 1e-9, -total / length.clamp_min(1e-9), 0.0)  # no length: not "very ID"

    def _gaps(self, logits: Tensor) -> Tensor:
        """``sum_c |z_y - z_c| / ||w_y - w_c||``."""
        index = predicted(logits)
        return -products_with(logits, self.inverse_, index, centre=logits.gather(1, index[:, None]))

    def _lengths(self, features: Tensor) -> Tensor:
        return centred_lengths(features, self.mean_ if self.normaliser == "distance" else torch.zeros_like(self.mean_))
