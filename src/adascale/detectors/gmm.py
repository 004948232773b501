"""GMM: likelihood of the features under a mixture of Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import Covariance, MeanFeatures, squared_distances
from adascale.detectors.parameters import number
from adascale.detectors.rows import in_chunks
from adascale.detectors.statistics import Count, Course, Drawn, Gathered, State, Together
from adascale.detectors.traits import Space
from adascale.maths.mixture import fit_tied

MOST_POINTS = 2**18  # that EM holds in memory


@dataclass
class GMM(Detector):
    """A mixture of Gaussians, as in Yang et al., "OpenOOD: benchmarking generalized out-of-distribution detection",
    NeurIPS 2022.

    ``y`` = the first ``dim`` principal components of the features (all, where there are fewer); ``components``
    Gaussians with one covariance ``Sigma`` for all, fitted by EM;
    ``S = -log sum_k w_k exp(-(y - mu_k)^T Sigma^-1 (y - mu_k) / 2)``.

    EM starts from ``components`` samples drawn with ``seed`` (the reference: from scikit-learn's k-means). Of more than
    262,144 samples, as many, drawn with ``seed``, are what EM sees; the principal components are those of all.
    """

    name = "gmm"
    summary = "likelihood under a mixture of Gaussians"
    cost = "product"
    fits_on = "train"
    search_space: ClassVar[Space] = {"components": (10, 50, 100), "dim": (20, 50, 100)}

    components: int = number(50, least=1)
    dim: int = number(50, least=1)
    seed: int = 0

    def _learn(self, head: Head) -> Course:
        self.mean_, total = yield Together((MeanFeatures(), Count()))
        if total <= self.components:
            raise InputError(
                f"gmm with components={self.components} got {total} training samples; give more, or lower it."
            )
        _, vectors = torch.linalg.eigh((yield Covariance(self.mean_)))
        projection = vectors[:, -self.dim :].contiguous()
        drawn = None if total <= MOST_POINTS else Drawn.by(self.seed, MOST_POINTS, total)[0]
        points: Tensor = yield _Points(self.mean_, projection, drawn)
        mixture = fit_tied(points, self.components, self.seed)
        self.projection_ = projection @ mixture.root
        self.centres_, self.log_weights_ = mixture.means @ mixture.root, mixture.log_weights

    def _score(self, outputs: Outputs) -> Tensor:
        points = (outputs.features.double() - self.mean_) @ self.projection_
        return -torch.logsumexp(self.log_weights_ - squared_distances(points, self.centres_) / 2, dim=1)


@dataclass(frozen=True)
class _Points(Gathered):
    """The principal components of the samples, or of those that are drawn."""

    mean: Tensor
    projection: Tensor
    drawn: Drawn | None

    def of(self, outputs: Outputs, start: int) -> State:
        if self.drawn is not None:
            chosen = self.drawn.of(outputs, start)
            outputs = Outputs(chosen["logits"], chosen["features"])
        nothing = torch.empty(0, self.projection.shape[1], dtype=torch.float64)
        points = ((chunk.features.double() - self.mean) @ self.projection for chunk in in_chunks(outputs))
        return {"points": torch.cat([nothing, *points])}

    def value(self, state: State) -> Tensor:
        return state["points"]
