"""The arithmetic of activations and logits: sorted rows, counts, the ratio ``r``, the eCDF, the energy.

Sums and scores are float64. NumPy sorts, because its vectorised sort of values takes a third of the time of a top-k
with indices. A single row has code of its own (`RankedRow`, `energy_of`): there, starting an operation costs more than
the operation, and the general path takes 1.5 times as long.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adascale.maths.pieces import Buffer, all_finite, finite_sums, in_pieces
from adascale.maths.tracing import plain

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

# exp(500) is about 1e217: far beyond any real score, and still finite after multiplication with logits.
LARGEST_EXPONENT = 500.0
# A larger sum of exponentials has lost nothing to underflow: a term of its last digit is still a normal number.
_SMALLEST_SUM = 1e-290


def share_count(total: int, share: float) -> int:
    """``floor(total * share)``; a product that rounding puts just below an integer counts as that integer."""
    return math.floor(total * share + 1e-9)


def top_count(features: int, percent: float) -> int:
    """How many entries ``percent`` % of ``features`` are: ``max(1, floor(D * k / 100))``."""
    return max(1, share_count(features, percent / 100))


def keep_count(features: int, percentile: npt.ArrayLike) -> Array:
    """Entries above a percentile: ``D - round(D * p / 100)``, half to even, never fewer than 1."""
    below = np.rint(features * np.asarray(percentile, dtype=np.float64) / 100)
    kept: Array = np.maximum(features - below, 1).astype(np.intp)
    return kept


def ecdf(reference: npt.ArrayLike, values: npt.ArrayLike) -> Floats:
    """``F(q) = #{reference <= q} / n`` for a *sorted* reference (right-continuous)."""
    known = np.asarray(reference)
    return known.searchsorted(np.asarray(values), side="right") / len(known)


def descending(activations: Tensor) -> tuple[Tensor, Tensor]:
    """Each row from large to small, with indices; equal values keep the lower index first."""
    values, order = torch.sort(activations, dim=1, descending=True, stable=True)
    return values, order


def first_ties(above: Any, tied: Any, count: int) -> Any:
    """A mask of ``count`` entries in each row: all ``above``, then the ``tied`` ones with the lowest indices."""
    room = count - above.sum(1)[:, None]
    return above | (tied & (tied.cumsum(1) <= room))


def _at_least(least: Array, values: Array, count: int) -> Array:
    """A mask of the ``count`` largest entries of each row, of which ``least`` (N, 1) is the smallest."""
    chosen: Array = values >= least
    if np.count_nonzero(chosen) != len(values) * count:
        chosen = first_ties(values > least, values == least, count)
    return chosen


def strongest(activations: Tensor, count: int) -> Tensor:
    """A mask (N, D) of the ``count`` largest entries of each row; of equal values, those with the lowest indices."""
    values, below = activations.numpy(), activations.shape[1] - count
    # A partition takes longer than this sort where many values are equal, as zeros are after a ReLU.
    return torch.from_numpy(_at_least(np.sort(values, axis=1)[:, below, None], values, count))


class Ranking:
    """The rows of a matrix (N, D), ranked by value."""

    def __init__(self, activations: Tensor) -> None:
        self.values: Array = activations.contiguous().numpy()
        self.ascending: Array = np.sort(self.values, axis=1)
        self.rows, self.size = self.values.shape

    def strongest(self, count: int) -> Array:
        """The places of the ``count`` largest entries of each row in the flattened matrix (N, count), ascending.

        Of equal values, those with the lowest indices are taken.
        """
        least = self.ascending[:, self.size - count, None]
        places: Array = _at_least(least, self.values, count).ravel().nonzero()[0]
        return places.reshape(self.rows, count)

    def ratio(self, keep: Array, relu: bool = True) -> Floats:
        """``r = (sum of a row) / (sum of its k largest)``, float64; ``k``: one for all rows, or one for each.

        With ``relu`` the sums are those of ``max(a, 0)``. A row without a positive entry has ``r = 1``.
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
        total = kept + sums[::2] * (keep < self.size)  # reduceat gives the first entry, not 0, for an empty piece
        usable = (ranked[:, -1] > 0) & (kept != 0)
        ratio: Floats = np.ones(self.rows)
        np.divide(total, kept, out=ratio, where=usable)
        return ratio

    def ratio_above(self, percentile: Floats) -> Floats:
        """`ratio` with the entries above a percentile: one for all rows, or one for each."""
        return self.ratio(keep_count(self.size, percentile))


class RankedRow:
    """`Ranking` for a single row."""

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


def ratio_of(mass: Tensor, total: Tensor, keep: Tensor) -> Tensor:
    """`Ranking.ratio` from ``mass``, whose column j - 1 is the sum of a row's j largest entries."""
    kept = mass.gather(1, keep.expand(len(mass))[:, None] - 1).squeeze(1)
    usable = (mass[:, 0] > 0) & (kept != 0)
    return torch.where(usable, total / torch.where(usable, kept, 1.0), 1.0)


def activation_scale(ratio: Floats) -> Floats:
    """``e^r``, kept finite."""
    return np.exp(np.minimum(ratio, LARGEST_EXPONENT))


def scaled_activation_logits(logits: Tensor, bias: Tensor, ratio: Tensor) -> Tensor:
    """``W (a e^r) + b`` without the head: ``e^r`` is one number for each row, so this is ``e^r (z - b) + b``."""
    scale = torch.from_numpy(activation_scale(ratio.double().numpy()))
    return scale[:, None] * (logits.double() - bias) + bias


def energy(logits: Tensor, marked: bool = False) -> Tensor:
    """``E(z) = log sum_c exp(z_c)`` per row (Liu et al., 2020, "Energy-based out-of-distribution detection").

    marked: NaN for a row with an infinite logit, which is looked for while the logits are in the processor's cache;
    without a look at the values, in a trace, rows are not marked.
    """
    return _energy(logits, marked) if plain(logits) else torch.logsumexp(logits.double(), dim=1)


def _energy(logits: Tensor, marked: bool, largest: Tensor | None = None) -> Tensor:
    """`energy`; the largest logit of each row is written into ``largest`` (N,)."""
    total, buffer = torch.empty(len(logits), dtype=torch.float64), Buffer(logits)
    for rows in in_pieces(logits):
        part, sums, terms = logits[rows], total[rows], buffer[rows]
        finite = not marked or all_finite([part])
        with np.errstate(over="ignore", under="ignore"):  # such sums are made again below
            np.exp(part.numpy(), out=terms.numpy(), dtype=np.float64)
        torch.sum(terms, 1, out=sums)
        if not finite:
            sums[~finite_sums(part)] = torch.nan
        if largest is not None:
            torch.amax(part, 1, out=largest[rows])
    if len(total) and total.min() > _SMALLEST_SUM and total.isfinite().all():
        return total.log_()
    # Each row is shifted first, at twice the cost.
    return torch.where(total.isnan(), torch.nan, torch.logsumexp(logits.double(), dim=1))


def largest_probability(logits: Tensor, marked: bool = False) -> Tensor:
    """``max_c softmax(z)_c = exp(max_c z_c - E(z))`` per row; marked: as in `energy`."""
    if not plain(logits):
        return (logits.amax(1).double() - energy(logits)).exp_()
    largest = logits.new_empty(len(logits))
    total = _energy(logits, marked, largest)
    return (largest.double() - total).exp_()


def log_others(logits: Tensor) -> Tensor:
    """``log(1 - max_c softmax(z)_c)`` per row, without cancellation: the energy of all logits but the largest, less
    that of all.
    """
    return energy(logits.scatter(1, logits.argmax(1, keepdim=True), -math.inf)) - energy(logits)


def entropy(logits: Tensor) -> Tensor:
    """``-sum_c p_c log p_c`` per row, ``p = softmax(z)``."""
    log_p = logits.double().log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)


def energy_of(logits: Floats) -> float:
    """`energy` of one row of finite logits."""
    top = logits.max()
    return float(top + math.log(np.exp(logits - top).sum()))


def generalised_entropy(logits: Tensor, gamma: float = 0.1, top: int = 100) -> Tensor:
    """``sum over the M most probable classes of p^gamma (1 - p)^gamma`` per row; ``1 - p`` without cancellation."""
    log_p = _largest(logits, top).double() - energy(logits)[:, None]
    rest = torch.log1p(-log_p.exp().clamp(max=0.5))  # only the most probable class can have more than one half
    rest = rest.scatter(1, log_p.argmax(1, keepdim=True), log_others(logits)[:, None])
    return (gamma * (log_p + rest)).exp().sum(1)


def _largest(logits: Tensor, top: int) -> Tensor:
    """The ``top`` largest entries of each row, in any order."""
    below = logits.shape[1] - top
    if not plain(logits):
        return logits if below <= 0 else logits.topk(top, dim=1).values
    return logits if below <= 0 else torch.from_numpy(np.partition(logits.numpy(), below, axis=1)[:, below:])


def row_norms(values: Tensor) -> Tensor:
    """The Euclidean length of each row."""
    lengths: Tensor = torch.linalg.vector_norm(values, dim=1)
    return lengths


def unit_rows(values: Tensor) -> Tensor:
    """Each row over its length, float64; an all-zero row stays zero."""
    values = values.double()
    lengths = row_norms(values)[:, None]
    return values / torch.where(lengths > 0, lengths, 1.0)
