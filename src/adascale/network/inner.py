"""The inner layers of one network, found once: where taps read, and what a view of the network changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from adascale.core.engines import TORCH
from adascale.core.errors import InputError
from adascale.core.types import Goal, Need, Tap, View
from adascale.network.head_passes import HeadPasses
from adascale.network.heads import kind
from adascale.network.layers import Layers, Place
from adascale.network.tapping import Reading, changed


def check_layers(engine: str, compiled: bool) -> None:
    """Refuse passes of a kind that does not show its inner layers."""
    if engine != TORCH or compiled:
        given = f"engine={engine!r}" if engine != TORCH else "compiled=True"
        rest = f"use engine={TORCH!r}" if engine != TORCH else "leave it out"
        raise InputError(
            f"{given} gives features and logits alone; methods that look at or change inner layers need more: {rest}."
        )


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The rows of several pieces."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


class Inner:
    """What is known about the inner layers; nothing before `look`."""

    def __init__(self) -> None:
        self.layers: Layers | None = None
        self._places: dict[Tap, tuple[Place, ...]] = {}

    @torch.no_grad()
    def look(self, network: nn.Module, head: str, images: Tensor) -> None:
        """Watch one pass of these images."""
        self.layers = Layers(network, head, images, lambda: network(images))

    def passed(
        self,
        passes: HeadPasses,
        network: nn.Module,
        head: str,
        parts: Iterable[Tensor],
        taps: Sequence[Tap],
        goals: Sequence[Goal] | None,
    ) -> tuple[Tensor, Tensor, list[Tensor], dict[Tap, tuple[Tensor, ...]]]:
        """Features, logits, input gradients and what the taps read, of one pass for each part.

        goals: of the input gradients; None where the pass keeps no graph.
        """
        rows: list[tuple[Tensor, ...]] = []
        read = []
        for part in parts:
            reading = Reading({tap: self._of(tap) for tap in taps})
            with reading.of(network):
                if goals is None:
                    rows.append(passes.whole(network, head, part))
                else:
                    rows.append(passes.with_gradients(network, head, part, goals, reading))
            read.append(reading.read())
        features, logits, *gradients = (joined(column) for column in zip(*rows, strict=True))
        tapped = {tap: tuple(map(joined, zip(*(found[tap] for found in read), strict=True))) for tap in taps}
        return features, logits, gradients, tapped

    def changed(self, network: nn.Module, view: View) -> AbstractContextManager[None]:
        """The network with the change of this view."""
        if reason := self.cannot(network, view):
            raise InputError(reason)
        return changed(network, view, self._found.maps(), self._found.dropouts())

    def cannot(self, network: nn.Module, need: Need) -> str:
        """Why the network cannot give this; empty if it can."""
        if isinstance(need, Tap):
            try:
                self._of(need)
            except InputError as error:
                return str(error)
            return ""
        if need.network is None:
            return ""
        if need.network == "dropout" and not self._found.dropouts():
            return f"{kind(network)} has no dropout module with p > 0, so that there is nothing to switch on."
        stages = self._found.maps()
        if need.network == "rank_one" and -need.stage > len(stages):
            return f"{kind(network)} has fewer than {-need.stage} stages with several positions: it has {len(stages)}."
        return ""

    @property
    def _found(self) -> Layers:
        assert self.layers is not None
        return self.layers

    def _of(self, tap: Tap) -> tuple[Place, ...]:
        if tap not in self._places:
            self._places[tap] = self._found.places(tap)
        return self._places[tap]
