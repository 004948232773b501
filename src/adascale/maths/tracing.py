"""Whether arithmetic may take its short cuts: through NumPy, or by a look at the values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_TORCH_ALONE = ContextVar("torch_alone", default=False)


def plain(values: Tensor) -> bool:
    """Whether these values can be looked at: on the processor, and not within a trace."""
    return values.device.type == "cpu" and not (torch.compiler.is_compiling() or _TORCH_ALONE.get())


@contextmanager
def torch_alone() -> Iterator[None]:
    """Within it nothing takes a short cut, as in a trace."""
    token = _TORCH_ALONE.set(True)
    try:
        yield
    finally:
        _TORCH_ALONE.reset(token)
