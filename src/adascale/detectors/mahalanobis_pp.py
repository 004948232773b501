"""Mahalanobis++: Mahalanobis distance of features of length 1."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from adascale.detectors.mds import MDS
from adascale.maths.activations import unit_rows


@dataclass
class MahalanobisPP(MDS):
    """Mueller & Hein, "Mahalanobis++: improving OOD detection via feature normalization", ICML 2025.

    `MDS` on ``u = a / ||a||``, in fitting and scoring: ``S = min_c (u - mu_c)^T Sigma^+ (u - mu_c)``. An all-zero row
    has ``u = 0``.
    """

    name = "mahalanobis_pp"
    summary = "Mahalanobis distance of features of length 1"

    @staticmethod
    def made_of(features: Tensor) -> Tensor:
        return unit_rows(features)
