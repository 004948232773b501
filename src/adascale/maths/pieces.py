"""Arithmetic that is a matter of memory: in pieces that stay in the processor's cache, with buffers used again.

A matrix in float64 that leaves the cache between two operations takes longer to move than to compute with. Within a
trace, and on other devices, the same is computed at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from adascale.maths.tracing import plain

_VALUES = 2**18  # of a piece: 2 MB in float64


def predicted(logits: Tensor) -> Tensor:
    """The class with the largest logit of each row, the first of equal ones; NumPy finds it in a third of the time."""
    return torch.from_numpy(logits.numpy().argmax(1)) if plain(logits) else logits.argmax(1)


def all_finite(parts: Sequence[Tensor]) -> bool:
    """True only if every entry is finite. A sum of squares is finite only if all its terms are; one that overflows says
    False. As a product of vectors it takes less time than a sum.
    """
    flat = (part.reshape(-1) for part in parts)
    return all(math.isfinite(torch.dot(values, values).item()) for values in flat)


def finite_sums(values: Tensor) -> Tensor:
    """Which rows have a finite sum, as they do only if every entry is finite: one pass, no mask of the full size."""
    return values.double().sum(1).isfinite()


def in_pieces(values: Tensor) -> Iterator[slice]:
    """Rows that fit into the cache in float64, of a matrix (N, D)."""
    rows = _rows(values)
    return (slice(start, min(start + rows, len(values))) for start in range(0, len(values), rows))


def _rows(values: Tensor) -> int:
    return max(1, _VALUES // max(1, values.shape[1]))


class Buffer:
    """Room for a piece in one precision, made once."""

    def __init__(self, values: Tensor, dtype: torch.dtype = torch.float64) -> None:
        self._room = torch.empty(min(len(values), _rows(values)), values.shape[1], dtype=dtype)

    def __getitem__(self, rows: slice) -> Tensor:
        """The room for these rows."""
        return self._room[: rows.stop - rows.start]


def centred_pieces(values: Tensor, centre: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Which rows, and ``x - m`` of these, float64, in a buffer that the next piece overwrites. centre: one ``m`` (D)
    for all, or one number (N, 1) for each row.
    """
    buffer = Buffer(values)
    for rows in in_pieces(values):
        yield rows, buffer[rows].copy_(values[rows]).sub_(centre if centre.ndim == 1 else centre[rows])


def centred_lengths(values: Tensor, centre: Tensor) -> Tensor:
    """``||x - m||`` for each row, float64."""
    if not plain(values):
        whole: Tensor = torch.linalg.vector_norm(values.double() - centre, dim=1)
        return whole
    lengths = torch.empty(len(values), dtype=torch.float64)
    for rows, piece in centred_pieces(values, centre):
        torch.linalg.vector_norm(piece, dim=1, out=lengths[rows])
    return lengths


def products_with(values: Tensor, table: Tensor, index: Tensor, centre: Tensor | None = None) -> Tensor:
    """``(x_i - m) . t_j`` with ``j`` the index of row ``i`` (N,), float64. table: float64. centre: as in
    `centred_pieces`, or none.
    """
    if not plain(values):
        centred = values.double() if centre is None else values.double() - centre
        return (centred * table[index]).sum(1)
    products, chosen = torch.empty(len(values), dtype=torch.float64), Buffer(values)
    plainly = ((rows, values[rows]) for rows in in_pieces(values))
    for rows, piece in plainly if centre is None else centred_pieces(values, centre):
        row_products(torch.index_select(table, 0, index[rows], out=chosen[rows]), piece, products[rows])
    return products


def row_products(left: Tensor, right: Tensor, out: Tensor) -> None:
    """``x . y`` for each pair of rows (N,), float64. left: float64, and the products are written there."""
    torch.sum(left.mul_(right), 1, out=out)
