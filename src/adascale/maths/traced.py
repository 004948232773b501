"""The arithmetic of `adascale.maths.activations` as torch operations alone.

These forms can be traced and exported, and run where the tensors are. They hold for any number of rows; the forms with
NumPy, which take less time on a processor, agree with them to 1e-12. Every operation here has a counterpart in ONNX.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adascale.maths.activations import LARGEST_EXPONENT, first_ties, keep_count, top_count


def ranked(activations: Tensor) -> Tensor:
    """The values of each row from large to small."""
    return torch.sort(activations, dim=1, descending=True).values


def keep_counts(features: int, percentile: Tensor) -> Tensor:
    """Entries above each percentile: ``D - round(D * p / 100)``, half to even, never fewer than 1."""
    below = torch.round(features * percentile / 100)
    return (features - below).clamp_min(1)


def strongest(activations: Tensor, descending: Tensor, percent: float) -> Tensor:
    """A mask of the ``percent`` % largest entries of each row; of equal values, those with the lowest indices."""
    return largest(activations, descending, top_count(activations.shape[1], percent))


def largest(activations: Tensor, descending: Tensor, count: int) -> Tensor:
    """A mask of the ``count`` largest entries of each row, in the same way."""
    least = descending[:, count - 1 : count]
    chosen: Tensor = first_ties(activations > least, activations == least, count)
    return chosen


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """The sum of the chosen entries of each row, float64."""
    return torch.where(mask, values.double(), 0.0).sum(1)


def ratio(descending: Tensor, keep: Tensor, relu: bool = True) -> Tensor:
    """``r = (sum of a row) / (sum of its k largest)``, with ``relu`` of ``max(a, 0)``; 1 for a row without a positive
    entry. descending: the ranked rows. keep: ``k``, for each row or one for all.
    """
    values = descending.double()
    values = values.clamp_min(0) if relu else values
    places = torch.arange(values.shape[1], dtype=torch.float64, device=values.device)
    kept = masked_sum(values, places < keep.reshape(-1, 1))
    usable = (values[:, 0] > 0) & (kept != 0)
    return torch.where(usable, values.sum(1) / torch.where(usable, kept, 1.0), 1.0)


def ratio_above(descending: Tensor, percentile: Tensor) -> Tensor:
    """`ratio` with the entries above a percentile: one for each row, or one for all."""
    return ratio(descending, keep_counts(descending.shape[1], percentile))


def fixed_ratio(descending: Tensor, percentile: float, relu: bool = True) -> Tensor:
    """``r`` of each row, ``k`` from one percentile for all."""
    keep = int(keep_count(descending.shape[1], percentile))
    return ratio(descending, torch.tensor(keep, dtype=torch.float64, device=descending.device), relu)


def activation_scale(ratio: Tensor) -> Tensor:
    """``e^r``, kept finite."""
    return ratio.clamp_max(LARGEST_EXPONENT).exp()


def ecdf(reference: Tensor, values: Tensor) -> Tensor:
    """``F(q) = #{reference <= q} / n``."""
    return (reference <= values[:, None]).double().sum(1) / reference.shape[0]


def interpolated(values: Tensor, knots: Tensor, levels: Tensor) -> Tensor:
    """The line through ``(knots, levels)``, ascending, at these values; beyond the ends it is constant."""
    if knots.shape[0] == 1:
        return levels.expand(values.shape[0])
    # Comparisons in place of a clamp: the exporter's optimiser breaks some graphs with clamps between tensors.
    inside = torch.where(values < knots[0], knots[0], torch.where(values > knots[-1], knots[-1], values))
    left = ((knots <= inside[:, None]).long().sum(1) - 1).clamp(0, knots.shape[0] - 2)
    rise = (levels[1:] - levels[:-1]) / (knots[1:] - knots[:-1])
    return levels[left] + rise[left] * (inside - knots[left])


def is_finite(values: Tensor) -> Tensor:
    """Which values are finite numbers, as a comparison that every engine has."""
    return values.abs() < torch.inf
