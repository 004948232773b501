"""The statistics of AdaSCALE: how far the strongest activations move, and how large they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import numpy as np
from torch import Tensor

from adascale.maths.activations import Floats, Ranking, top_count

Values = TypeVar("Values", Tensor, Floats, float)
Lazy = Callable[[], Values]
Statistic = Literal["q_prime", "q", "c_o", "top", "q_top"]


def activation_shift(ranking: Ranking, perturbed: Tensor, k1: float) -> Floats:
    """``Q``: the sum of ``|a_eps - a|`` where the ``k1`` % strongest of ``a`` are."""
    i1 = ranking.strongest(top_count(ranking.size, k1))
    moved = perturbed.numpy().ravel()[i1].astype(np.float64) - ranking.values.ravel()[i1]
    shift: Floats = np.abs(moved).sum(1)
    return shift


def perturbed_mass(ranking: Ranking, perturbed: Tensor, k2: float) -> Floats:
    """``C_o``: the sum of ``ReLU(a_eps)`` where the ``k2`` % strongest of ``a`` are."""
    i2 = ranking.strongest(top_count(ranking.size, k2))
    mass: Floats = np.maximum(perturbed.numpy().ravel()[i2], 0).sum(1, dtype=np.float64)
    return mass


def combined_statistic(
    name: Statistic, lam: float, shift: Lazy[Values], mass: Lazy[Values], top: Lazy[Values]
) -> Values:
    """The statistic of this name from ``Q``, ``C_o`` and the sum of the k2 % largest of ``a``."""
    if name == "top":
        return top()
    if name == "c_o":
        return mass()
    if name == "q":
        return shift()
    return lam * shift() + (top() if name == "q_top" else mass())
