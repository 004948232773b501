"""What a fit takes from its samples, in a form that merges: a state of each block, and one state of all of them.

A state is a dictionary of tensors. States are merged in the order of the blocks, so that sums are rounded alike
wherever the blocks were looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from adascale.core.types import Layers, Need, Outputs, Tap, View
from adascale.detectors.rows import rowwise

State = dict[str, Tensor]


class Statistic(ABC):
    """A question to all samples. Its fields are what it depends on; they can be pickled."""

    blocked: ClassVar[bool] = True  # False: no arithmetic between samples, so blocks do not matter

    @abstractmethod
    def of(self, outputs: Outputs, start: int) -> State:
        """The state of these samples, which may be none. start: how many usable ones come before them; 0 in the first
        pass of a fit, where that is not known yet.
        """

    @abstractmethod
    def merged(self, states: Iterable[State]) -> State:
        """One state of all, from those of the blocks in order. The first may be written into."""

    def value(self, state: State) -> Any:
        """What the method is told of the merged state."""
        return state


# A method's fit: it asks for one statistic after the other, is sent the value over all samples, and ends.
Course = Generator[Statistic, Any, None]


class Sums(Statistic):
    """States that are added."""

    def merged(self, states: Iterable[State]) -> State:
        total: State = {}
        for state in states:
            if not total:
                total = state
                continue
            for name, part in state.items():
                total[name] += part
        return total


class Gathered(Statistic):
    """States that are put one after the other."""

    def merged(self, states: Iterable[State]) -> State:
        parts = list(states)
        if len(parts) < 2:
            return parts[0] if parts else {}  # without a copy
        return {name: torch.cat([part.pop(name) for part in parts]) for name in list(parts[0])}


@dataclass(frozen=True)
class Together(Statistic):
    """Several statistics in one pass; their values as a list."""

    parts: tuple[Statistic, ...]

    def of(self, outputs: Outputs, start: int) -> State:
        found = [part.of(outputs, start) for part in self.parts]
        return {f"{i}.{name}": value for i, state in enumerate(found) for name, value in state.items()}

    def merged(self, states: Iterable[State]) -> State:
        total: list[State] = []
        for state in states:
            own = [self._own(state, i) for i in range(len(self.parts))]
            joined = zip(self.parts, total, own, strict=True) if total else ()
            total = [part.merged([before, new]) for part, before, new in joined] if total else own
        return {f"{i}.{name}": value for i, state in enumerate(total) for name, value in state.items()}

    def value(self, state: State) -> list[Any]:
        return [part.value(self._own(state, i)) for i, part in enumerate(self.parts)]

    def _own(self, state: Mapping[str, Tensor], i: int) -> State:
        return {name.partition(".")[2]: value for name, value in state.items() if name.partition(".")[0] == str(i)}


@dataclass(frozen=True)
class Count(Sums):
    """How many samples there are."""

    blocked = False

    def of(self, outputs: Outputs, start: int) -> State:
        return {"rows": torch.tensor(len(outputs))}

    def value(self, state: State) -> int:
        return int(state["rows"])


@dataclass(frozen=True)
class Rows(Gathered):
    """The samples themselves: all of their outputs with these views and taps, or their features alone."""

    wants: tuple[Need, ...] = ()
    features_alone: bool = False
    blocked = False

    def of(self, outputs: Outputs, start: int) -> State:
        if self.features_alone:
            return {"features": outputs.features}
        labels = {} if outputs.labels is None else {"labels": outputs.labels}
        views = {str(view): outputs.views[view] for view in self.wants if isinstance(view, View)}
        taps = (tap for tap in self.wants if isinstance(tap, Tap))
        layers = {f"{tap}#{i}": layer for tap in taps for i, layer in enumerate(outputs.taps[tap])}
        return {"logits": outputs.logits, "features": outputs.features, **labels, **views, **layers}

    def value(self, state: State) -> Any:
        if self.features_alone:
            return state["features"]
        views = {view: state[str(view)] for view in self.wants if isinstance(view, View)}
        taps = {tap: self._layers(tap, state) for tap in self.wants if isinstance(tap, Tap)}
        return Outputs(state["logits"], state["features"], views, state.get("labels"), taps)

    def _layers(self, tap: Tap, state: State) -> Layers:
        return tuple(state[name] for i in range(len(state)) if (name := f"{tap}#{i}") in state)


@dataclass(frozen=True)
class Drawn(Gathered):
    """Chosen samples, by their places (ascending) among the usable ones: features and logits."""

    places: Tensor
    blocked = False

    @staticmethod
    def by(seed: int, size: int, total: int) -> tuple[Drawn, Tensor]:
        """``size`` of ``total`` samples, drawn with a seed; and where each of them, in the order of the draw, is among
        what comes back.
        """
        drawn = torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:size]
        places, order = drawn.sort()
        return Drawn(places), order.argsort()

    def of(self, outputs: Outputs, start: int) -> State:
        ends = torch.searchsorted(self.places, torch.tensor([start, start + len(outputs)]))
        own = self.places[int(ends[0]) : int(ends[1])] - start
        return {"features": outputs.features[own], "logits": outputs.logits[own]}


@dataclass(frozen=True)
class Each(Gathered):
    """One number for each sample, float64."""

    compute: Callable[[Outputs], Tensor]

    def of(self, outputs: Outputs, start: int) -> State:
        return {"values": rowwise(outputs, self.compute)}

    def value(self, state: State) -> Tensor:
        return state["values"]
