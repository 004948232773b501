"""Whether the weights of a network are still those that they were, at less than a hundredth of a pass."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

_SAMPLE = 16  # values of each tensor


class Watched:
    """Tensors as they are now: their version counters and some values of each.

    PyTorch counts changes in place, but not those through ``.data``. These are found by the values: up to 16 of each
    tensor, the first, the last and others evenly between them. So a change of a few other values of one tensor through
    ``.data`` is not seen.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors, self._counters = tensors, [one for one in tensors if not one.is_inference()]
        self._arrays, self._others = _samples(tensors)
        self._state, self._values = self._now(), self._each()

    def are_unchanged(self) -> bool:
        """Whether they are the same where they are."""
        return self._now() == self._state

    def equal(self, other: Watched) -> bool:
        """Whether others, elsewhere, were the same when they were first looked at."""
        return (self._state[0], self._values) == (other._state[0], other._values)

    def _now(self) -> tuple[list[int], list[bytes]]:
        """As bytes, because a NaN is itself then."""
        found = [np.concatenate(self._arrays).tobytes()] if self._arrays else []
        return self._counted(), found + [one.double().cpu().numpy().tobytes() for one in self._others]

    def _counted(self) -> list[int]:
        return [tensor._version for tensor in self._counters]

    def _each(self) -> list[bytes]:
        """As float64, because a wider type has the same values."""
        return [one.double().cpu().numpy().tobytes() for tensor in self._tensors for one in _sample(tensor)]


class Weights:
    """The weights of a network as they are now, wherever they are moved."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        spaces = ((one._parameters, one._buffers, one._modules) for one in model.modules())
        self._spaces = [space for group in spaces for space in group if space]
        self._contents = self._held()
        self._tensors = [one for one in self._contents if isinstance(one, Tensor) and one.ndim]
        self._places, self._watched = self._placed(), Watched(self._tensors)

    def are_unchanged(self) -> bool:
        held = self._held()
        same = len(held) == len(self._contents) and all(map(operator.is_, held, self._contents))
        if same and self._placed() == self._places:
            return self._watched.are_unchanged()
        moved = Weights(self._model)  # to another device, or with other tensors in the place of its own
        if not moved._watched.equal(self._watched):
            return False
        vars(self).update(vars(moved))
        return True

    def _placed(self) -> list[int]:
        try:
            return [tensor.data_ptr() for tensor in self._tensors]
        except RuntimeError:
            return list(map(place, self._tensors))

    def _held(self) -> list[Any]:
        return [one for space in self._spaces for one in space.values()]


def place(tensor: Tensor) -> int:
    """Where in memory a tensor is; 0 for those without memory."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


def _samples(tensors: Sequence[Tensor]) -> tuple[list[Any], list[Tensor]]:
    """Samples of tensors: as arrays where NumPy has them, which is faster, and the others."""
    arrays, others = [], []
    for tensor in tensors:
        for view in _sample(tensor):
            try:
                arrays.append(view.numpy())
            except (TypeError, RuntimeError):  # on a GPU, or of a type that NumPy does not have
                others.append(view)
    return arrays, others


def _sample(tensor: Tensor) -> list[Tensor]:
    """A view of some values of a tensor, over its memory whatever its layout is; none where that cannot be."""
    count = min(_SAMPLE, tensor.numel())
    step = max(1, (tensor.numel() - 1) // max(1, count - 1))
    try:
        return [tensor.detach().as_strided((count,), (step,))]
    except RuntimeError:  # sparse, or expanded
        return []
