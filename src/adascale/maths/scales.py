"""Bounds of an energy score over all scales between two."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from adascale.maths.activations import energy


def energies_between(direction: Tensor, offset: Tensor, ends: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The least ``-E(s z + c)`` for scales ``s`` between the two ends, and a bound of the largest (N,).

    ``E(s z + c)`` is convex in ``s``: ``-E`` is least at an end, and largest at an end too, or, where the slope of
    ``E`` turns, at most where its two end tangents meet. direction: ``z`` (N, C). offset: ``c``.
    """
    values, slopes, cuts = zip(*(_tangent(direction, offset, scale) for scale in ends), strict=True)
    low, high = -torch.maximum(*values), -torch.minimum(*values)
    turns = (slopes[0] < 0) & (slopes[1] > 0)
    meet = (cuts[0] - cuts[1]) / torch.where(turns, slopes[1] - slopes[0], 1.0)
    return low, torch.where(turns, -(cuts[0] + slopes[0] * meet), high)


def _tangent(direction: Tensor, offset: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``E(s z + c)``, its derivative ``sum p z`` in ``s`` (p: the softmax), and where the tangent cuts ``s = 0``.

    The cut is ``sum p c + H(p)``: as ``E`` minus slope times ``s`` it would cancel to nothing for large scales.
    """
    logits = scale[:, None] * direction + offset
    p = torch.softmax(logits, 1)
    return energy(logits), (p * direction).sum(1), (p * offset).sum(1) - torch.xlogy(p, p).sum(1)
