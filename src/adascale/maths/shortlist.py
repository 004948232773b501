"""Products in float32 that narrow a search down, with bounds on their errors; what they leave open is decided in
float64.

A product of float32 matrices takes half the time of one in float64. Its entries are off, but by no more than is known
beforehand, so most pairs of vectors are ruled out by it for certain.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_ROUNDING = 2.0**-24
_PAIRS = 128  # pairs of vectors at a time: 2 MB of 2,048 values in float64
_FITTING = (1e-15, 1e15)  # lengths whose squares and products neither overflow nor vanish in float32


def product_error(size: int) -> float:
    """``|fl(x . y) - x . y| <= product_error(D) * sum_i |x_i y_i|`` for vectors of D values in float32, in whatever
    order they are summed (Higham, "Accuracy and stability of numerical algorithms", section 3.1), with a reserve of 8
    roundings for the steps before and after.
    """
    steps = (size + 8) * _ROUNDING
    return steps / (1 - steps) if steps < 1 else float("inf")


def fits_float32(lengths: Tensor) -> bool:
    """Whether vectors of these lengths can be multiplied in float32 without overflow; zero vectors can."""
    low, high = _FITTING
    return bool(((lengths == 0) | ((lengths > low) & (lengths < high))).all())


def pairwise(rows: Tensor, columns: Tensor, compute: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """``compute(rows, columns)``, one value for each pair of indices, in pieces (P,), float64."""
    parts = zip(torch.split(rows, _PAIRS), torch.split(columns, _PAIRS), strict=True)
    return torch.cat([torch.empty(0, dtype=torch.float64), *(compute(*part) for part in parts)])


def pair_products(left: Tensor, right: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """``left[i] . right[j]`` for these pairs of indices."""
    return pairwise(rows, columns, lambda i, j: (left[i] * right[j]).sum(1))


def kth_largest_open(found: Tensor, k: int, error: float) -> tuple[Tensor, Tensor]:
    """From approximate values (N, M), each off by at most ``error`` and in descending order: which entries are certain
    to lie above the row's k-th largest true value, and which could be that value.

    The k-th largest true value is within ``error`` of the k-th largest approximate one, and the approximate value of
    whatever attains it is within ``error`` of that again.
    """
    middle = found[:, k - 1 : k]
    return found > middle + 2 * error, (found - middle).abs() <= 2 * error
