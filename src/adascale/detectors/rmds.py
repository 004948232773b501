"""RMDS: Mahalanobis distance relative to one Gaussian for everything."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.classes import Covariance, precision_root
from adascale.detectors.mds import MDS
from adascale.detectors.statistics import Course, Together


@dataclass
class RMDS(MDS):
    """Ren et al., "A simple fix to Mahalanobis distance for improving near-OOD detection", 2021.

    ``S = min_c M_c(a) - M_0(a)``: `MDS` minus the distance to one Gaussian (mean, covariance) of all training samples.
    """

    name = "rmds"
    summary = "Mahalanobis distance minus that to one global Gaussian"

    def _spread(self, means: Tensor) -> Course:
        within, overall = yield Together((Covariance(means), Covariance(self.mean_)))
        self.root_, self.global_root_ = precision_root(within, self.name), precision_root(overall, self.name)

    def _score(self, outputs: Outputs) -> Tensor:
        centred = (outputs.features.double() - self.mean_) @ self.global_root_
        return super()._score(outputs) - centred.square().sum(1)
