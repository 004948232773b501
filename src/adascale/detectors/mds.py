"""MDS: Mahalanobis distance to the nearest class."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import (
    as_is,
    class_means,
    covariance,
    mean_features,
    precision_root,
    squared_distances,
)


@dataclass
class MDS(Detector):
    """Lee et al., "A simple unified framework for detecting out-of-distribution samples ...", NeurIPS 2018.

    Class means ``mu_c`` (true labels), one shared covariance ``Sigma``; ``S = min_c (a - mu_c)^T Sigma^+ (a - mu_c)``,
    with the pseudo-inverse where samples are fewer than features. Classes without a training sample do not count.
    """

    name = "mds"
    summary = "Mahalanobis distance to the nearest class mean"
    cost = "product"
    fits_on = "train+labels"

    def _fit(self, reference: Outputs, head: Head) -> None:
        means, counts = class_means(reference, self.name, of=self.made_of)
        self.root_ = precision_root(covariance(reference, means, self.made_of), self.name)
        self.mean_ = mean_features(
            reference, self.made_of
        )  # taken off first: far from the origin the squares below would cancel
        self.centres_ = (means[counts > 0] - self.mean_) @ self.root_

    def _score(self, outputs: Outputs) -> Tensor:
        points = (self.made_of(outputs.features) - self.mean_) @ self.root_
        return squared_distances(points, self.centres_).amin(1)

    def made_of(self, features: Tensor) -> Tensor:
        """What the distances are measured on."""
        return as_is(features)
