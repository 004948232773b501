"""The inner layers of one network, found once: where taps read, and what a view of the network changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor, nn

from adascale.core.engines import TORCH
from adascale.core.errors import InputError
from adascale.core.types import Need, Tap, View
from adascale.network.heads import kind
from adascale.network.layers import Layers, Place
from adascale.network.tapping import Reading, changed


def no_layers(engine: str, compiled: bool) -> str:
    """Why passes of this kind do not show their inner layers; empty if they do."""
    if engine == TORCH and not compiled:
        return ""
    given = "compiled=True" if engine == TORCH else f"engine={engine!r}"
    rest = "leave it out" if engine == TORCH else f"use engine={TORCH!r}"
    return f"{given} gives features and logits alone; methods that look at or change inner layers need more: {rest}."


class Inner:
    """What is known about the inner layers; nothing before `look`."""

    def __init__(self) -> None:
        self.layers: Layers | None = None
        self._places: dict[Tap, tuple[Place, ...]] = {}

    def look(self, network: nn.Module, head: str, images: Tensor) -> None:
        """Watch one pass of these images."""
        self.layers = Layers(network, head, images, lambda: network(images))

    @contextmanager
    def reading(self, network: nn.Module, taps: Sequence[Tap]) -> Iterator[Reading]:
        """What the taps read of the one pass that is made meanwhile."""
        reading = Reading({tap: self._of(tap) for tap in taps})
        with reading.of(network):
            yield reading

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
        if need.network == "dropout" and not self._found.dropouts():
            return f"{kind(network)} has no dropout module with p > 0, so that there is nothing to switch on."
        stages = self._found.maps()
        if need.network == "rank_one" and -need.stage > len(stages):
            return f"{kind(network)} has {len(stages)} stages with several positions; stage={need.stage} needs more."
        return ""

    @property
    def _found(self) -> Layers:
        assert self.layers is not None
        return self.layers

    def _of(self, tap: Tap) -> tuple[Place, ...]:
        if tap not in self._places:
            self._places[tap] = self._found.places(tap)
        return self._places[tap]
