"""Passes that read inner layers on their way, and passes of a changed network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.taps import Objective, Tap
from adascale.core.types import View
from adascale.maths.layers import as_maps, channels_last, finite_maps, reduced
from adascale.network.layers import Place, tensor_in


class Reading:
    """What the taps read in one pass. places: where each of them reads."""

    def __init__(self, places: Mapping[Tap, Sequence[Place]]) -> None:
        self._places = places
        self._values: dict[tuple[Tap, Place], Tensor] = {}
        self._kept: dict[Place, Tensor] = {}  # layers whose gradient is needed
        self._calls: dict[str, int] = {}

    @property
    def objectives(self) -> list[Objective]:
        return list(dict.fromkeys(tap.objective for tap in self._places if tap.objective is not None))

    @contextmanager
    def of(self, network: nn.Module) -> Iterator[None]:
        """Read the passes that this network makes meanwhile: one."""
        names = dict.fromkeys(place.name for places in self._places.values() for place in places)
        given = {place.name for places in self._places.values() for place in places if place.given}
        handles = []
        try:
            for name in names:
                module = network.get_submodule(name)
                if name in given:  # before the module, which may write into what it is given
                    handles.append(module.register_forward_pre_hook(_named(self._before, name)))
                handles.append(module.register_forward_hook(_named(self._after, name)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _before(self, name: str, args: Any) -> None:
        value = tensor_in(args)
        if value is not None:
            self._read(Place(name, self._calls.get(name, 0) + 1, given=True), value)

    def _after(self, name: str, args: Any, result: Any) -> Any:
        self._calls[name] = call = self._calls.get(name, 0) + 1
        value = tensor_in(result)
        if value is None:
            return None
        kept = [self._read(place, value) for place in (Place(name, call), Place(name))]
        # What follows may write into the result: then the gradient would be that of another value.
        return value.clone() if any(kept) and isinstance(result, Tensor) else None

    def _read(self, place: Place, value: Tensor) -> bool:
        """Reduce what is wanted of this call at once. Returns whether its gradient is wanted as well."""
        wanted = [tap for tap, places in self._places.items() if place in places]
        for tap in wanted:
            if not tap.needs_gradient:
                self._values[tap, place] = reduced(value.detach(), tap)
        if any(tap.needs_gradient for tap in wanted):
            self._kept[place] = value
            return True
        return False

    def differentiate(self, features: Tensor, logits: Tensor, leaf: Tensor) -> Tensor | None:
        """The reductions of gradients, while the graph of the pass is there.

        Returns the input gradient of the largest logit, if that is an objective: it needs no pass of its own then.
        """
        places, layers = list(self._kept), list(self._kept.values())
        input_gradient: Tensor | None = None
        for objective in self.objectives:
            goal, whole = _objective(objective, features, logits), objective == "predicted"
            asked = [leaf, *layers] if whole else layers
            found = list(torch.autograd.grad(goal, asked, retain_graph=True, allow_unused=True))
            input_gradient = found.pop(0) if whole else input_gradient
            for place, value, gradient in zip(places, layers, found, strict=True):
                for tap in (tap for tap, asked in self._places.items() if place in asked):
                    if tap.objective == objective:
                        gradient = torch.zeros_like(value) if gradient is None else gradient
                        self._values[tap, place] = reduced(value.detach(), tap, gradient)
        return input_gradient

    def read(self) -> dict[Tap, tuple[Tensor, ...]]:
        """The values of every tap, layer by layer."""
        for tap, places in self._places.items():
            if missing := [place.name for place in places if (tap, place) not in self._values]:
                raise InputError(f"The layer {missing[0]!r} was not called for this input; name other layers.")
        return {tap: tuple(self._values[tap, place] for place in places) for tap, places in self._places.items()}


def _named(function: Any, name: str) -> Any:
    return lambda _, *rest: function(name, *rest)


def _objective(name: Objective, features: Tensor, logits: Tensor) -> Tensor:
    if name == "features":
        return features.sum()
    return -logits.log_softmax(1).mean(1).sum() if name == "uniform" else logits.max(1).values.sum()


@contextmanager
def changed(network: nn.Module, view: View, stages: Sequence[Place], dropouts: Sequence[str]) -> Iterator[None]:
    """The network with the change of this view. stages, dropouts: where they are."""
    calls: Counter[str] = Counter()
    # Images go through the network in pieces: the calls of a layer are counted anew for each.
    handles = [network.register_forward_pre_hook(lambda *_: calls.clear())]
    try:
        if view.network == "rank_one":
            handles.append(_rank_one_hook(network, stages[view.stage], calls))
        for number, name in enumerate(dropouts if view.network == "dropout" else ()):
            handles.append(_dropout_hook(network, name, view.seed, number, calls))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _rank_one_hook(network: nn.Module, place: Place, calls: Counter[str]) -> Any:
    def change(_: nn.Module, args: Any, result: Any) -> Any:
        calls[place.name] += 1
        return without_rank_one(result) if calls[place.name] == place.call and isinstance(result, Tensor) else None

    return network.get_submodule(place.name).register_forward_hook(change)


def without_rank_one(maps: Tensor) -> Tensor:
    """The maps of each image, as a matrix (C, S), without its first singular component.

    ``x - x v v^T``, with ``v`` the first eigenvector of ``x^T x`` (or from the left, if there are fewer channels). NaN
    for an image that is not finite.
    """
    x, finite = finite_maps(as_maps(maps).double())
    if x.shape[1] < x.shape[2]:
        first = torch.linalg.eigh(x @ x.transpose(1, 2)).eigenvectors[:, :, -1:]
        rest = x - first @ (first.transpose(1, 2) @ x)
    else:
        first = torch.linalg.eigh(x.transpose(1, 2) @ x).eigenvectors[:, :, -1:]
        rest = x - (x @ first) @ first.transpose(1, 2)
    rest = torch.where(finite, rest, torch.nan)
    if maps.ndim == 4 and channels_last(maps.shape):
        rest = rest.reshape(*rest.shape[:2], *maps.shape[1:3]).permute(0, 2, 3, 1)
    elif maps.ndim == 3:
        rest = rest.transpose(1, 2)
    found: Tensor = rest.reshape(maps.shape).to(maps)
    return found


def _dropout_hook(network: nn.Module, name: str, seed: int, number: int, calls: Counter[str]) -> Any:
    """Dropout with a mask that is the same for every image of a shape: a score then depends on the image alone."""
    module = network.get_submodule(name)
    share = float(getattr(module, "p", 0.0))
    whole = isinstance(module, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d)  # channels at once

    def drop(_: nn.Module, args: Any, result: Tensor) -> Tensor:
        calls[name] += 1
        shape = (result.shape[1], *(1 for _ in result.shape[2:])) if whole else tuple(result.shape[1:])
        # As a part of a draw for one image: the batch must not matter.
        drawn = torch.rand(shape, generator=torch.Generator().manual_seed(_mixed(seed, number, calls[name])))
        return result * ((drawn >= share).to(result) / max(1 - share, 1e-12))

    return module.register_forward_hook(drop)


def _mixed(*parts: int) -> int:
    """One seed from several numbers."""
    seed = 0
    for part in parts:
        seed = (seed * 1_000_003 + part + 1) % (2**63 - 1)
    return seed
