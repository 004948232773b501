"""SCALE as its authors' code computes it, to compare with."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from adascale.core.types import Head


def scale_of_authors(features: Tensor, percentile: float = 85) -> Tensor:
    """SCALE (Xu et al., 2024) in the steps of its authors' code and in the dtype of the features (N, D).

    A row becomes ``a exp(s1 / s2)``: ``s1`` is its sum, ``s2`` the sum of its k largest values.
    """
    kept, size = features.clone(), features.shape[1]
    total = kept.sum(1)
    values, places = kept.topk(size - round(size * percentile / 100), dim=1)
    kept.zero_().scatter_(1, places, values)
    return features * (total / kept.sum(1)).exp()[:, None]


def scale_score_of_authors(features: Tensor, head: Head, percentile: float = 85) -> Tensor:
    """The score that follows, higher = more OOD: ``S = -logsumexp(W (a exp(r)) + b)``."""
    scaled = scale_of_authors(features, percentile)
    return -F.linear(scaled, head.weight, head.bias).logsumexp(1)
