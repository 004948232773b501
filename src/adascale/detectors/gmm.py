"""GMM: likelihood of the features under a mixture of Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector, Space
from adascale.detectors.classes import covariance, mean_features, squared_distances
from adascale.detectors.parameters import number
from adascale.detectors.rows import in_chunks
from adascale.maths.mixture import fit_tied


@dataclass
class GMM(Detector):
    """A mixture of Gaussians, as in Yang et al., "OpenOOD: benchmarking generalized out-of-distribution detection",
    NeurIPS 2022.

    ``y`` = the first ``dim`` principal components of the features (all, where there are fewer); ``components``
    Gaussians with one covariance ``Sigma`` for all, fitted by EM;
    ``S = -log sum_k w_k exp(-(y - mu_k)^T Sigma^-1 (y - mu_k) / 2)``.

    EM starts from ``components`` samples drawn with ``seed`` (the reference: from scikit-learn's k-means).
    """

    name = "gmm"
    summary = "likelihood under a mixture of Gaussians"
    cost = "product"
    fits_on = "train"
    search_space: ClassVar[Space] = {"components": (10, 50, 100), "dim": (20, 50, 100)}

    components: int = number(50, least=1)
    dim: int = number(50, least=1)
    seed: int = 0

    def _fit(self, reference: Outputs, head: Head) -> None:
        if len(reference) <= self.components:
            raise InputError(
                f"gmm with components={self.components} got {len(reference)} training samples; give more, or lower it."
            )
        self.mean_ = mean_features(reference)
        _, vectors = torch.linalg.eigh(covariance(reference, self.mean_))
        projection = vectors[:, -self.dim :].contiguous()
        points = torch.cat([(chunk.features.double() - self.mean_) @ projection for chunk in in_chunks(reference)])
        mixture = fit_tied(points, self.components, self.seed)
        self.projection_ = projection @ mixture.root
        self.centres_, self.log_weights_ = mixture.means @ mixture.root, mixture.log_weights

    def _score(self, outputs: Outputs) -> Tensor:
        points = (outputs.features.double() - self.mean_) @ self.projection_
        return -torch.logsumexp(self.log_weights_ - squared_distances(points, self.centres_) / 2, dim=1)
