"""Class GMM: likelihood of the features under a Gaussian for each class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import ClassSums
from adascale.detectors.parameters import number
from adascale.detectors.rows import in_chunks
from adascale.detectors.statistics import Course, State, Sums
from adascale.detectors.traits import Space

MOST_VALUES = 2**27  # of all covariances: 1 GB


@dataclass
class ClassGMM(Detector):
    """Gaussian discriminant analysis of the features, as in Mukhoti et al., "Deep deterministic uncertainty: a new
    simple baseline", CVPR 2023, without its training (pytorch-ood's GMM).

    ``pi_c``, ``mu_c``, ``Sigma_c`` = share, mean feature and covariance of the training samples of class ``c`` (true
    labels), ``reg`` added to the variances; ``S = -log sum_c pi_c N(a; mu_c, Sigma_c)``. Classes without a training
    sample do not count. There are C D^2 numbers to learn: above 134 million it refuses.
    """

    name = "class_gmm"
    summary = "likelihood under a Gaussian for each class"
    cost = "heavy"
    fits_on = "train+labels"
    search_space: ClassVar[Space] = {"reg": (1e-6, 1e-4, 1e-2)}

    reg: float = number(1e-6, above=0)

    def _learn(self, head: Head) -> Course:
        classes, size = head.weight.shape
        if classes * size**2 > MOST_VALUES:
            raise InputError(
                f"{self.name} learns a covariance of {size} features for each of {classes} classes, which is more than "
                f"{MOST_VALUES / 1e6:.0f} million numbers; use mds, which has one for all classes."
            )
        means, counts = yield ClassSums()
        scatter: Tensor = yield _Scatter(means)
        seen = counts > 0
        values, vectors = torch.linalg.eigh(scatter[seen] / counts[seen][:, None, None])
        spread = values.clamp_min(0) + self.reg
        self.means_, self.roots_ = means[seen], vectors / spread.sqrt()[:, None, :]
        shares = (counts[seen] / counts.sum()).log()
        self.peaks_ = shares - (spread.log().sum(1) + size * math.log(2 * math.pi)) / 2

    def _score(self, outputs: Outputs) -> Tensor:
        parts = zip(self.means_, self.roots_, strict=True)
        features = outputs.features.double()
        squares = [((features - mean) @ root).square().sum(1) for mean, root in parts]
        return -torch.logsumexp(self.peaks_ - torch.stack(squares, 1) / 2, dim=1)


@dataclass(frozen=True)
class _Scatter(Sums):
    """``sum of (a - mu_c)(a - mu_c)^T`` over the samples of each class (C, D, D)."""

    means: Tensor

    def of(self, outputs: Outputs, start: int) -> State:
        classes, size = self.means.shape
        total = torch.zeros(classes, size, size, dtype=torch.float64)
        for chunk in in_chunks(outputs):
            assert chunk.labels is not None  # checked before
            centred = chunk.features.double() - self.means[chunk.labels]
            for c in torch.unique(chunk.labels).tolist():
                own = centred[chunk.labels == c]
                total[c].addmm_(own.T, own)
        return {"total": total}

    def value(self, state: State) -> Tensor:
        return state["total"]
