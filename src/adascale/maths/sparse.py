"""Products with rows of which few entries are not zero, in float64.

A dense product does not get faster by zeros. One over the few entries does, if the other matrix is taken in blocks that
stay in the processor's cache: with a tenth of the entries it takes two thirds of the time.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

_MOST = 0.12  # of the entries; with more, a dense product takes less time


def pays(entries: int, size: int) -> bool:
    """Whether rows with so many entries of ``size`` are worth a sparse product, which needs Intel's library."""
    return entries <= _MOST * size and bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]


def sparse_product(values: Tensor, columns: Tensor, blocks: Sequence[Tensor]) -> Tensor:
    """``A M`` (N, C), where row ``i`` of ``A`` has ``values[i]`` (k) at ``columns[i]`` and else zeros. blocks: ``M``
    (D, C), some columns at a time.
    """
    _announced()
    starts = torch.arange(0, values.numel() + 1, values.shape[1], dtype=torch.int32)
    rows = _compressed(starts, columns.flatten().to(torch.int32), values.flatten(), (len(values), len(blocks[0])))
    return torch.cat([torch.sparse.mm(rows, block) for block in blocks], 1)


def _compressed(starts: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(starts, columns, values, size, check_invariants=False)


@lru_cache(maxsize=1)
def _announced() -> None:
    """Torch says once in a process that such matrices are new; users of a method need not hear it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = torch.ones(1, dtype=torch.float64)
        torch.sparse.mm(_compressed(torch.tensor([0, 1]), torch.tensor([0]), one, (1, 1)), one[:, None])
