"""FAISS for a sample alone against a large bank (J. Johnson, M. Douze, H. Jegou, "Billion-scale similarity search with
GPUs", 2017), where it is installed.

Its exact index (`IndexFlatIP`) narrows the search down as our own product in float32 does; distances in float64 decide
in both cases, so the scores have the same bits.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from adascale.core.extras import optional
from adascale.core.memory import memory_bytes
from adascale.maths.activations import unit_rows

FEWEST_ROWS = 65_536  # of a bank; below, a product takes a few milliseconds
MOST_SAMPLES = 1  # at a time; for more, one product of matrices reads the bank once for all of them, and is faster
CALLS_BEFORE = 8  # an index takes as long to build as some of them
_ADDED = 4096  # rows at a time

_calls: Any = WeakTensorKeyDictionary()
_indices: Any = WeakTensorKeyDictionary()


def nearest(unit: Tensor, bank: Tensor, length: int) -> tuple[Tensor, Tensor] | None:
    """``u . v - ||v||^2 / 2`` for the ``length`` nearest of the bank's unit vectors ``v``, in descending order, in
    float32, and which they are; None where our own search should be taken.
    """
    if len(unit) > MOST_SAMPLES or len(bank) < FEWEST_ROWS or not installed() or not _fits(bank):
        return None
    if bank not in _indices:
        _calls[bank] = _calls.get(bank, 0) + 1
        if _calls[bank] <= CALLS_BEFORE:
            return None
        _indices[bank] = _built(bank)
    asked = torch.cat([unit, torch.full((len(unit), 1), -0.5)], 1)
    found, index = _indices[bank].search(asked.numpy(), min(length, len(bank)))
    return torch.from_numpy(found), torch.from_numpy(index)


@cache
def installed() -> bool:
    return importlib.util.find_spec("faiss") is not None


def _fits(bank: Tensor) -> bool:
    """Whether there is room for a copy of the bank: the index takes at most a quarter of the memory."""
    return 4 * 4 * bank.numel() <= memory_bytes()


def _built(bank: Tensor) -> Any:
    """The index of the unit vectors, each with one more entry: 1, or 0 where the vector is 0."""
    index = optional("faiss", "faiss").IndexFlatIP(bank.shape[1] + 1)
    for block in torch.split(bank, _ADDED):
        unit = unit_rows(block)
        index.add(torch.cat([unit, (unit != 0).any(1, keepdim=True)], 1).float().numpy())
    return index
