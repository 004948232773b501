"""A mixture of Gaussians with one covariance, fitted by expectation-maximisation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_RIDGE = 1e-6  # added to the variances
_MOST_STEPS, _TOLERANCE = 50, 1e-3  # the tolerance of scikit-learn: until the mean log-likelihood gains less
_NOTHING = 10 * float(np.finfo(np.float64).eps)  # so that an empty component does not divide by 0


class Mixture(NamedTuple):
    """Means (K, d), ``root`` (d, d) with ``root root^T`` the inverse covariance, logarithms of the weights (K)."""

    means: Tensor
    root: Tensor
    log_weights: Tensor


def fit_tied(points: Tensor, components: int, seed: int) -> Mixture:
    """EM from ``components`` of the points (N, d), drawn with the seed: each point belongs to the nearest at first.

    The draw is NumPy's `RandomState`, whose stream is the same in all versions.
    """
    drawn = np.sort(np.random.RandomState(seed).permutation(len(points))[:components])
    nearest = torch.cdist(points, points[torch.from_numpy(drawn)]).argmin(1)
    shares = torch.nn.functional.one_hot(nearest, components).double()
    found, before = _maximised(points, shares), -np.inf
    for _ in range(_MOST_STEPS):
        joint = _log_joint(points, found)
        likely = torch.logsumexp(joint, 1)
        found, now = _maximised(points, (joint - likely[:, None]).exp()), float(likely.mean())
        if abs(now - before) < _TOLERANCE:
            break
        before = now
    return found


def _maximised(points: Tensor, shares: Tensor) -> Mixture:
    counts = shares.sum(0) + _NOTHING
    means = (shares.T @ points) / counts[:, None]
    spread = (points.T @ points - (means * counts[:, None]).T @ means) / counts.sum()
    spread = (spread + spread.T) / 2
    values, vectors = torch.linalg.eigh(spread + _RIDGE * torch.eye(points.shape[1], dtype=torch.float64))
    return Mixture(means, vectors / values.clamp_min(_RIDGE).sqrt(), (counts / counts.sum()).log())


def _log_joint(points: Tensor, mixture: Mixture) -> Tensor:
    """``log w_k N(x; mu_k, Sigma)`` (N, K), but for the constants that all pairs share and no step changes."""
    root = mixture.root
    squares = torch.cdist(points @ root, mixture.means @ root).square()
    joint: Tensor = mixture.log_weights + torch.linalg.slogdet(root).logabsdet - squares / 2
    return joint
