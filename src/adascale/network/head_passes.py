"""Passes of a network that read what its head is given and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.types import Goal
from adascale.network import heads
from adascale.network.running import objective
from adascale.network.tapping import Reading


class HeadPasses:
    """What the passes of one network have in common: how often they call the head, and the shape of its result."""

    def __init__(self) -> None:
        self._calls = 0  # the most that one pass has made so far
        self._logits_shape: tuple[int, ...] = ()

    def whole(self, network: nn.Module, head: str, images: Tensor) -> tuple[Tensor, Tensor]:
        """``(features, logits)``: those of the last call of the head."""
        calls, _ = heads.record(network, images, [(head, network.get_submodule(head))])
        if not calls:
            raise InputError(f"The network never called its head {head!r} for this input.")
        last = calls[-1]
        features, logits = (_rows(value, len(images), head) for value in (last.given, last.result))
        self._calls, self._logits_shape = max(self._calls, len(calls)), tuple(last.result.shape[1:])
        return features, heads.two_classes(logits, 1) if logits.shape[1] == 1 else logits

    def to_the_head(self, network: nn.Module, head: str, images: Tensor) -> Tensor:
        """The features, without computing the head: it keeps its input and returns zeros, which nothing reads."""
        if self._calls != 1:  # only the end of the pass shows which of several calls is the last
            return self.whole(network, head, images)[0]
        with heads.stopped(network.get_submodule(head), self._logits_shape) as seen:
            network(images)
        return _rows(seen[0], len(images), head) if len(seen) == 1 else self.whole(network, head, images)[0]

    def with_gradients(
        self,
        network: nn.Module,
        head: str,
        images: Tensor,
        goals: Sequence[Goal],
        reading: Reading | None = None,
    ) -> tuple[Tensor, ...]:
        """``(features, logits, *gradients)``, an input gradient for each goal. reading: of the inner layers."""
        leaf = images.detach().requires_grad_()
        features, logits = self.whole(network, head, leaf.clone())
        if not logits.requires_grad:
            raise InputError(
                f"{heads.kind(network)} blocks gradients from its logits to its input (no_grad or detach inside); "
                "use pixels='random', which needs none."
            )
        known = reading.differentiate(features, logits, leaf) if reading is not None and reading.objectives else None
        gradients = [
            torch.autograd.grad(objective(features, logits, goal), leaf, retain_graph=i + 1 < len(goals))[0]
            if known is None or goal is not None
            else known
            for i, goal in enumerate(goals)
        ]
        return features.detach(), logits.detach(), *gradients


def _rows(value: Any, count: int, head: str) -> Tensor:
    found = heads.rows(value, count)
    if found is None:
        raise InputError(f"The head {head!r} did not see one feature vector for each image of the batch.")
    return found
