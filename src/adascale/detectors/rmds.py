"""RMDS: Mahalanobis distance relative to one Gaussian for everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adascale.detectors.base import Detector, FitsOn
from adascale.detectors.classes import class_means, covariance, mean_features, precision_root, squared_distances
from adascale.types import Head, Outputs


@dataclass
class RMDS(Detector):
    """Ren et al., "A simple fix to Mahalanobis distance for improving near-OOD detection", 2021.

    ``S = min_c M_c(a) - M_0(a)``: `MDS` minus the distance to one Gaussian (mean, covariance) of all training samples.
    """

    name: ClassVar[str] = "rmds"
    summary: ClassVar[str] = "Mahalanobis distance minus that to one global Gaussian"
    fits_on: ClassVar[FitsOn] = "train+labels"

    def _fit(self, reference: Outputs, head: Head) -> None:
        means, counts = class_means(reference, self.name)
        self.root_ = precision_root(covariance(reference, means), self.name)
        self.centres_ = means[counts > 0] @ self.root_
        mean = mean_features(reference)
        self.global_root_ = precision_root(covariance(reference, mean), self.name)
        self.global_centre_ = mean @ self.global_root_

    def _score(self, outputs: Outputs) -> Tensor:
        features = outputs.features.double()
        nearest = squared_distances(features @ self.root_, self.centres_).amin(1)
        return nearest - (features @ self.global_root_ - self.global_centre_).square().sum(1)
