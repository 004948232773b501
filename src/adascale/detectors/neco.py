"""NECO: the share of a feature's length that lies in the principal subspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import Covariance, FeatureDeviations, MeanFeatures
from adascale.detectors.parameters import number
from adascale.detectors.statistics import Course
from adascale.detectors.traits import Space
from adascale.maths.activations import row_norms

_VARIANCE = 0.9


@dataclass
class NECO(Detector):
    """Ben Ammar et al., "NECO: neural collapse based out-of-distribution detection", ICLR 2024.

    ``x`` = the features minus their training mean, over their training deviation (1 for a feature that never varies);
    ``P`` = the ``dim`` strongest principal directions of ``x``; ``S = -||P^T x|| / ||x||``, times ``max z`` if
    ``max_logit``. ``dim=None`` takes the fewest directions that keep 90 % of the variance.

    Public codes differ in the factor: the authors leave it out for ResNets alone. It is one parameter here, and in the
    default. A row with ``x = 0`` scores 0.
    """

    name = "neco"
    summary = "share of the features in the principal subspace"
    cost = "product"
    fits_on = "train"
    search_space: ClassVar[Space] = {"dim": (None, 50, 100, 200), "max_logit": (True, False)}

    dim: int | None = number(None, least=1)
    max_logit: bool = True

    def _learn(self, head: Head) -> Course:
        size = head.weight.shape[1]
        if self.dim is not None and self.dim > size:
            raise InputError(f"dim={self.dim} for {size} features; it must be at most as many.")
        self.mean_ = yield MeanFeatures()
        deviation = yield FeatureDeviations(self.mean_)
        self.scale_ = torch.where(deviation > 0, 1 / deviation.clamp_min(1e-300), 1.0)
        around = torch.zeros_like(self.mean_)
        values, vectors = torch.linalg.eigh((yield Covariance(around, _Standardised(self.mean_, self.scale_))))
        strongest = values.flip(0).clamp_min(0)
        enough = (strongest.cumsum(0) < _VARIANCE * strongest.sum()).sum() + 1
        self.principal_ = vectors[:, size - (self.dim or min(size, int(enough))) :].contiguous()

    def _score(self, outputs: Outputs) -> Tensor:
        x = _Standardised(self.mean_, self.scale_)(outputs.features)
        length = row_norms(x)
        share = row_norms(x @ self.principal_) / torch.where(length > 0, length, 1.0)
        return -share * outputs.logits.double().amax(1) if self.max_logit else -share


@dataclass(frozen=True)
class _Standardised:
    mean: Tensor
    scale: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return (features.double() - self.mean) * self.scale
