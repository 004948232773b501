"""MDS: Mahalanobis distance to the nearest class."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import (
    ClassSums,
    Covariance,
    MeanFeatures,
    as_is,
    precision_root,
    squared_distances,
)
from adascale.detectors.statistics import Course, Together


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

    def _learn(self, head: Head) -> Course:
        # The mean is taken off first: far from the origin the squares below would cancel.
        mean: Tensor
        (means, counts), mean = yield Together((ClassSums(of_values=self.made_of), MeanFeatures(self.made_of)))
        self.mean_ = mean
        yield from self._spread(means)
        self.centres_ = (means[counts > 0] - self.mean_) @ self.root_

    def _spread(self, means: Tensor) -> Course:
        """Learn ``root_`` from the samples around these means."""
        self.root_ = precision_root((yield Covariance(means, self.made_of)), self.name)

    def _score(self, outputs: Outputs) -> Tensor:
        return self._distance(outputs.features)

    def _distance(self, features: Tensor) -> Tensor:
        """The squared distance (N,) to the nearest class."""
        points = (self.made_of(features) - self.mean_) @ self.root_
        return squared_distances(points, self.centres_).amin(1)

    @staticmethod
    def made_of(features: Tensor) -> Tensor:
        """What the distances are measured on."""
        return as_is(features)
