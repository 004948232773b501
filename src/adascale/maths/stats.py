"""The arithmetic shared by the methods. Pure functions on tensors; sums and scores are float64."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# exp(500) is about 1e217: far beyond any real score, and still finite after multiplication with logits.
_LARGEST_EXPONENT = 500.0


def energy(logits: Tensor) -> Tensor:
    """``E(z) = log sum_c exp(z_c)`` per row (Liu et al., 2020, "Energy-based out-of-distribution detection")."""
    return torch.logsumexp(logits.double(), dim=1)


def energy_of(logits: npt.NDArray[np.float64]) -> float:
    """`energy` of one row of finite logits."""
    top = logits.max()
    return float(top + math.log(np.exp(logits - top).sum()))


def share_count(total: int, share: float) -> int:
    """``floor(total * share)``; an exact product that floating point puts a hair below an integer counts as it."""
    return math.floor(total * share + 1e-9)


def top_count(features: int, percent: float) -> int:
    """How many entries ``percent`` % of ``features`` are: ``max(1, floor(D * k / 100))``."""
    return max(1, share_count(features, percent / 100))


def keep_count(features: int, percentile: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Entries above a percentile: ``D - round(D * p / 100)``, half to even, never fewer than 1."""
    below = np.rint(features * np.asarray(percentile, dtype=np.float64) / 100)
    kept: npt.NDArray[np.intp] = np.maximum(features - below, 1).astype(np.intp)
    return kept


def ecdf(reference: npt.ArrayLike, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """``F(q) = #{reference <= q} / n`` for a *sorted* reference (right-continuous)."""
    known = np.asarray(reference)
    return known.searchsorted(np.asarray(values), side="right") / len(known)


def descending(activations: Tensor) -> tuple[Tensor, Tensor]:
    """Each row from large to small, with indices; equal values keep the lower index first."""
    values, order = torch.sort(activations, dim=1, descending=True, stable=True)
    return values, order


def ratio_of(mass: Tensor, total: Tensor, keep: Tensor) -> Tensor:
    """`Ranking.ratio` from ``mass``, whose column j - 1 is the sum of a row's j largest entries."""
    kept = mass.gather(1, keep.expand(len(mass))[:, None] - 1).squeeze(1)
    usable = (mass[:, 0] > 0) & (kept != 0)
    return torch.where(usable, total / torch.where(usable, kept, 1.0), 1.0)


def activation_scale(ratio: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """``e^r``, kept finite."""
    return np.exp(np.minimum(ratio, _LARGEST_EXPONENT))


def scaled_activation_logits(logits: Tensor, bias: Tensor, ratio: Tensor) -> Tensor:
    """``W (a e^r) + b`` without the head: ``e^r`` is one number a row, so it equals ``e^r (z - b) + b``."""
    scale = torch.from_numpy(activation_scale(ratio.double().numpy()))
    return scale[:, None] * (logits.double() - bias) + bias


def generalised_entropy(logits: Tensor, gamma: float = 0.1, top: int = 100) -> Tensor:
    """``sum over the M most probable classes of p^gamma (1 - p)^gamma`` per row; ``1 - p`` without cancellation."""
    log_p = logits.double().log_softmax(1)
    largest = log_p.argmax(1, keepdim=True)
    rest = torch.log1p(-log_p.exp().clamp(max=0.5))  # only the most probable class can have more than one half
    others = log_p.scatter(1, largest, -math.inf).logsumexp(1, keepdim=True)
    rest = rest.scatter(1, largest, others)
    order = log_p.topk(min(top, log_p.shape[1]), dim=1).indices
    return (gamma * (log_p + rest)).gather(1, order).exp().sum(1)


def row_norms(values: Tensor) -> Tensor:
    """The Euclidean length of each row."""
    lengths: Tensor = torch.linalg.vector_norm(values, dim=1)
    return lengths


def unit_rows(values: Tensor) -> Tensor:
    """Each row over its length, float64; an all-zero row stays zero."""
    values = values.double()
    return values / row_norms(values)[:, None].clamp_min(1e-300)
