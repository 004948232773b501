"""Rows of activations, sorted once: all that SCALE, LTS and AdaSCALE ask of them.

In NumPy, whose vectorised sort of values takes a third of the time of a top-k with indices; for one row as for many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adascale.maths.stats import keep_count

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


class Ranking:
    """The rows of a matrix (N, D), ranked by value."""

    def __init__(self, activations: Tensor) -> None:
        self.values: Array = activations.contiguous().numpy()
        self.ascending: Array = np.sort(self.values, axis=1)
        self.rows, self.size = self.values.shape

    def strongest(self, count: int) -> Array:
        """Where the ``count`` largest entries of each row are in the flattened matrix, as (N, count), by index.

        Of equal values the lower index is taken first.
        """
        least = self.ascending[:, self.size - count]
        chosen = self.values >= least[:, None]
        places: Array = chosen.ravel().nonzero()[0]
        if places.size != self.rows * count:
            surplus = first_ties(self.values > least[:, None], self.values == least[:, None], count)
            places = surplus.ravel().nonzero()[0]
        return places.reshape(self.rows, count)

    def ratio(self, keep: Array, relu: bool = True) -> Floats:
        """``r = (sum of a row) / (sum of its k largest)``, float64; ``k``: one for all rows, or one a row.

        relu: of ``max(a, 0)``. A row without a positive entry has ``r = 1``.
        """
        if not self.rows:
            return np.ones(0)
        ranked = self.ascending
        if relu and ranked[:, 0].min() < 0:
            ranked = np.maximum(ranked, 0)
        cuts = np.arange(0, ranked.size, self.size).repeat(2)
        cuts[1::2] += self.size - keep
        sums = np.add.reduceat(ranked.ravel(), cuts, dtype=np.float64)
        kept = sums[1::2]
        total = kept + sums[::2] * (keep < self.size)  # an empty piece gives its first entry, not 0
        usable = (ranked[:, -1] > 0) & (kept != 0)
        ratio: Floats = np.ones(self.rows)
        np.divide(total, kept, out=ratio, where=usable)
        return ratio


class RankedRow:
    """The same for one row alone, where starting an operation costs more than the operation."""

    def __init__(self, activations: Tensor) -> None:
        self.values: Array = activations.numpy()[0]
        self.ascending: Array = np.sort(self.values)
        self.size = len(self.values)

    def strongest(self, count: int) -> Array:
        least = self.ascending[-count]
        places: Array = (self.values >= least).nonzero()[0]
        if len(places) != count:
            places = first_ties((self.values > least)[None], (self.values == least)[None], count)[0].nonzero()[0]
        return places

    def ratio(self, keep: int, relu: bool = True) -> float:
        row = self.ascending
        if relu and row[0] < 0:
            row = np.maximum(row, 0)
        kept = float(row[-keep:].sum(dtype=np.float64))
        if row[-1] <= 0 or kept == 0:
            return 1.0
        return (kept + float(row[:-keep].sum(dtype=np.float64))) / kept


def fixed_ratio(activations: Tensor, percentile: float, relu: bool = True) -> Tensor:
    """``r`` of each row, ``k`` from one percentile for all."""
    ranking = Ranking(activations)
    return torch.from_numpy(ranking.ratio(keep_count(ranking.size, percentile), relu))


def first_ties(above: Any, tied: Any, count: int) -> Any:
    """A mask of ``count`` entries a row: all ``above``, then of the ``tied`` ones those with the lowest indices."""
    room = count - above.sum(1)[:, None]
    return above | (tied & (tied.cumsum(1) <= room))
