"""Inner layers of any network, found by behaviour: what each module gives in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.taps import Tap
from adascale.maths.layers import channels_last
from adascale.network.heads import first_tensor, kind

_NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)
_ACTIVATIONS: tuple[type[nn.Module], ...] = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Hardswish, nn.Softplus, nn.Tanh, nn.Sigmoid),
)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class Place(NamedTuple):
    """A call of a module in a pass: the how-manieth (None: the last). given: what it is given, not what it gives."""

    name: str
    call: int | None = None
    given: bool = False


class _Seen(NamedTuple):
    place: Place
    module: nn.Module
    shape: tuple[int, ...]

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of maps; None for other results."""
        if len(self.shape) != 4:
            return None
        return self.shape[1:3] if channels_last(self.shape) else self.shape[2:]


class Layers:
    """The layers of a network as one pass of some images shows them, before its head is called.

    head: the name of the head. run: makes the pass.
    """

    def __init__(self, network: nn.Module, head: str, images: Tensor, run: Callable[[], object]) -> None:
        self.kind, self._names = kind(network), [name for name, _ in network.named_modules() if name]
        self._calls = _calls(network, head, len(images), run)

    def places(self, tap: Tap) -> tuple[Place, ...]:
        """Where the tap reads, in the order of the pass; refused if there is no such layer."""
        if isinstance(tap.layers, tuple):
            return tuple(map(self._named, tap.layers))
        found = {"stages": self.stages, "norms": self._norms, "activations": self._activations}[tap.layers]()
        if not found:
            raise InputError(f"{self.kind} has no {tap.layers} that can be found; name modules: layers=('...',).")
        return tuple(found)

    def dropouts(self) -> list[str]:
        """The dropout modules that do something when they are switched on."""
        called = dict.fromkeys(seen.place.name for seen in self._calls if isinstance(seen.module, _DROPOUTS))
        by_name = {seen.place.name: seen.module for seen in self._calls}
        return [name for name in called if getattr(by_name[name], "p", 0) > 0]

    def stages(self) -> list[Place]:
        """See `Tap`. Modules inside of others count only as deep as it takes to see three sizes, or two."""
        maps = _shrinking(self._calls)
        convolutions = [seen.size for seen in maps if isinstance(seen.module, nn.Conv2d)]
        outer = _outermost(maps)
        sizes = dict.fromkeys(seen.size for seen in outer)
        rich = [size for size in sizes if convolutions.count(size) > 1]
        last = {seen.size: seen.place for seen in outer if len(rich) < 2 or seen.size in rich}
        if len(last) > 1:
            return [seen.place for seen in outer if seen.place in last.values()]
        return self._blocks() or list(last.values()) or self._before_matrices()

    def maps(self) -> list[Place]:
        """The stages with several positions."""
        several = {seen.place for seen in self._calls if len(seen.shape) > 2}
        return [place for place in self.stages() if place in several]

    def _blocks(self) -> list[Place]:
        """The repeated blocks with the most weights, at even depths."""
        groups: dict[type[nn.Module], list[_Seen]] = {}
        for seen in self._calls:
            if len(seen.shape) in (3, 4) and any(True for _ in seen.module.children()):
                groups.setdefault(type(seen.module), []).append(seen)
        repeated = [group for group in groups.values() if len({seen.place.name for seen in group}) > 1]
        if not repeated:
            return []
        most = max(repeated, key=lambda group: sum(p.numel() for seen in group for p in seen.module.parameters()))
        return [seen.place for seen in most[1::2]]

    def _before_matrices(self) -> list[Place]:
        """What every matrix but the first is given, in a network of vectors."""
        matrices = [i for i, seen in enumerate(self._calls) if isinstance(seen.module, nn.Linear)]
        stops = [*matrices[1:], len(self._calls)]
        return [self._calls[i - 1].place for i in stops if i and len(self._calls[i - 1].shape) == 2]

    def _norms(self) -> list[Place]:
        return [seen.place for seen in self._calls if isinstance(seen.module, _NORMS)]

    def _activations(self) -> list[Place]:
        found = [seen.place._replace(given=True) for seen in self._calls if isinstance(seen.module, _ACTIVATIONS)]
        return found or self._norms()

    def _named(self, name: str) -> Place:
        if name not in (called := {seen.place.name for seen in self._calls}):
            reason = "is not called before the head" if name in self._names else "is no module"
            some = ", ".join(name for name in self._names if name in called and name.count(".") < 2)
            raise InputError(f"layers: {name!r} {reason} of {self.kind}; it has {some[:300]}.")
        return Place(name)


def _shrinking(calls: list[_Seen]) -> list[_Seen]:
    """The maps of several positions that are no larger than those before: tables of attention are not of these."""
    found: list[_Seen] = []
    for seen in calls:
        if seen.size is not None and max(seen.size) > 1:
            least = found[-1].size if found else None
            if least is None or (seen.size[0] <= least[0] and seen.size[1] <= least[1]):
                found.append(seen)
    return found


def _outermost(maps: list[_Seen]) -> list[_Seen]:
    """The calls of modules down to the least depth that has three sizes; if none has, two; else all."""
    depths = sorted({seen.place.name.count(".") for seen in maps})
    for wanted in (3, 2):
        for depth in depths:
            found = [seen for seen in maps if seen.place.name.count(".") <= depth]
            if len({seen.size for seen in found}) >= wanted:
                return found
    return maps


def _calls(network: nn.Module, head: str, count: int, run: Callable[[], object]) -> list[_Seen]:
    """Every call that ends before that of the head begins, and gives a tensor with a row for each image."""
    seen: list[_Seen] = []
    calls: dict[str, int] = {}
    over: list[bool] = []
    handles = [network.get_submodule(head).register_forward_pre_hook(lambda *_: over.append(True))]
    try:
        for name, module in network.named_modules():
            if not name or isinstance(module, torch.jit.ScriptModule):
                continue

            def keep(module: nn.Module, args: Any, result: Any, name: str = name) -> None:
                calls[name] = calls.get(name, 0) + 1
                value = tensor_in(result)
                if not over and value is not None and value.ndim > 1 and len(value) == count:
                    seen.append(_Seen(Place(name, calls[name]), module, tuple(value.shape)))

            handles.append(module.register_forward_hook(keep))
        run()
    finally:
        for handle in handles:
            handle.remove()
    return seen


def tensor_in(result: Any) -> Tensor | None:
    """The first tensor of what a module gives."""
    if isinstance(result, Tensor):
        return result
    items: Sequence[Any] = tuple(result.values()) if isinstance(result, dict) else result
    found = first_tensor(items, {}) if isinstance(items, tuple | list) else None
    return found if isinstance(found, Tensor) else None
