"""A private twin of a network: the same modules once more, on the same weights. Passes run on it.

Flags, hooks and the head's forward change on the twin alone, so the user's own calls in other threads never see it.
"""

from __future__ import annotations

import copy
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adascale.maths.rounding import alike
from adascale.network.changes import Watched, place

FOLDING_SLACK = 1e-6  # how far folding may move the features, relative to the largest
_CONTENTS = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
_OWN = frozenset(vars(nn.Module()))  # the attributes that every module has
_PLAIN = (bool, int, float, str, tuple, type(None))
_READS = ("aten::_local_scalar_dense", "aten::equal", "aten::nonzero")  # what a branch on values begins with


class Twin:
    """A twin of this network, in evaluation mode and without gradients of parameters.

    module: the twin; None where the network cannot be copied. largest: the number of values of its largest activation
    for each value of its input; None before `observe`.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modules, self._tensors = list(model.modules()), [*model.parameters(), *model.buffers()]
        self._state = _state(self._modules, self._tensors)
        self.module = _copied(model)
        self.modules = [] if self.module is None else list(self.module.modules())
        self.largest: float | None = None
        self._pairs: list[_Pair] = []
        self._folded: Watched | None = None

    def is_current(self) -> bool:
        """Whether the network still has the modules, hooks, settings and tensors that the twin was made of.

        Values that change in place are seen by the twin too, as it shares their memory; but folded layers keep a
        product of theirs. So those are compared by version and by some of their values.
        """
        now = _state(self._modules, self._tensors)
        return _same(now, self._state) and (self._folded is None or self._folded.are_unchanged())

    def observe(self, run: Callable[[], object], values: int) -> None:
        """Watch a pass of the twin. values: how many its input has."""
        if self.module is None:
            return
        own = set(map(id, self._tensors))
        try:
            with _watched(self.module) as watch:
                run()
        except Exception:  # where it is the network's own, it comes again
            self.module = None
            return
        if watch.met & own:  # a closure leads back to the network itself, whose flags are not ours
            self.module = None
            return
        self.largest = watch.largest / values
        self._pairs = [] if watch.reads_values else watch.pairs()  # a branch on values may use more than was seen

    def fold(self, features: Callable[[], Tensor]) -> None:
        """Fold batch-norm into the convolution before it, if the features then stay the same.

        A pair is folded if nothing but the norm used the convolution's result in the pass that was watched.

        features: those of some images, computed by the twin as it then is.
        """
        pairs = self._pairs
        if self.module is None or not pairs:
            return
        names = {module: name for name, module in self.module.named_modules()}
        found = [self._model.get_submodule(names[module]) for pair in pairs for module in pair]
        tensors = (tensor for module in found for tensor in chain(module.parameters(False), module.buffers(False)))
        sources = [tensor for tensor in tensors if tensor.ndim]  # the norm's count of batches is not used
        if any(tensor.is_inference() for tensor in sources):
            return
        before = features()
        kept = [(conv, conv.weight, conv.bias, norm) for conv, norm in pairs]
        for pair in pairs:
            _fold(*pair)
        if alike(features(), before, FOLDING_SLACK):
            self._folded = Watched(sources)
            return
        for conv, weight, bias, norm in kept:
            conv.weight, conv.bias = weight, bias
            del norm.forward


_Pair = tuple[nn.Conv2d, nn.BatchNorm2d]


def _copied(model: nn.Module) -> nn.Module | None:
    """The same modules once more, on tensors that share the memory of the originals; None if there cannot be any.

    Everything that is neither a module nor a tensor is shared. Networks with hooks or a replaced forward have no twin:
    those may know the original modules.
    """
    if not all(map(_is_plain, model.modules())):
        return None
    tensors = chain(model.parameters(), model.buffers())
    twins: dict[int, Any] = {id(tensor): _shared(tensor) for tensor in tensors}
    return cast(nn.Module, _mirrored(model, twins))


def _mirrored(value: Any, twins: dict[int, Any]) -> Any:
    """The value with every module and tensor in it replaced by its twin; itself if there are none in it."""
    if id(value) in twins:
        return twins[id(value)]
    if isinstance(value, nn.Module):
        twin = twins[id(value)] = object.__new__(type(value))
        for name, part in vars(value).items():
            mirrored = _mirrored(part, twins)
            vars(twin)[name] = copy.copy(part) if mirrored is part and name in _OWN else mirrored
        vars(twin)["training"] = False
        return twin
    if type(value) in (dict, OrderedDict):
        parts = {key: _mirrored(part, twins) for key, part in value.items()}
        return value if all(parts[key] is value[key] for key in parts) else type(value)(parts)
    if type(value) in (list, tuple):
        items = [_mirrored(part, twins) for part in value]
        return value if all(map(operator.is_, items, value)) else type(value)(items)
    if isinstance(value, MethodType) and isinstance(value.__self__, nn.Module):
        return MethodType(value.__func__, _mirrored(value.__self__, twins))
    return value


def _is_plain(module: nn.Module) -> bool:
    """Whether calling the module does what its class says, on tensors that are what they seem."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    changed = any(hooks) or "forward" in vars(module) or module._compiled_call_impl is not None
    tensors = chain(module.parameters(False), module.buffers(False))
    known = all(type(tensor) in (Tensor, nn.Parameter) for tensor in tensors)  # others: without a shape yet, ...
    return known and not changed and not isinstance(module, torch.jit.ScriptModule)


def _shared(tensor: Tensor) -> Tensor:
    alias = tensor.detach()
    return nn.Parameter(alias, requires_grad=False) if isinstance(tensor, nn.Parameter) else alias


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    """``W' = W g / s``, ``b' = (b - m) g / s + c``, where ``(x - m) g / s + c`` is the norm; it then does nothing."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    conv.weight, conv.bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    norm.forward = _unchanged  # type: ignore[assignment, method-assign]


def _unchanged(x: Tensor) -> Tensor:
    return x


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What happens to the tensors of this thread. met: the ids of all that operations were given."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest, self.reads_values = 0, False
        self.met: set[int] = set()
        self._uses: dict[int, int] = {}
        self._results: dict[int, tuple[nn.Conv2d, Tensor]] = {}
        self._calls: dict[nn.Module, int] = {}
        self._followed: list[tuple[_Pair, Tensor]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        given = set(map(id, leaves))
        self.met |= given
        for key in given & self._uses.keys():
            self._uses[key] += 1
        self.reads_values |= func._schema.name in _READS
        result = func(*args, **kwargs)
        old = {place(value) for value in leaves}
        new = (value.numel() for value in tree_leaves(result) if isinstance(value, Tensor) and place(value) not in old)
        self.largest = max(self.largest, *new, 0)
        return result

    def convolved(self, conv: nn.Module, _: Any, result: Any) -> None:
        self._calls[conv] = self._calls.get(conv, 0) + 1
        if isinstance(result, Tensor) and isinstance(conv, nn.Conv2d):
            self._results[id(result)], self._uses[id(result)] = (conv, result), 0  # held, so that its id stays its own

    def normalised(self, norm: nn.Module, args: Any) -> None:
        self._calls[norm] = self._calls.get(norm, 0) + 1
        if args and id(args[0]) in self._results and isinstance(norm, nn.BatchNorm2d):
            conv, result = self._results[id(args[0])]
            self._followed.append(((conv, norm), result))

    def pairs(self) -> list[_Pair]:
        """Convolutions and norms that were called once, the norm on the convolution's result and nothing else on it."""
        return [
            pair
            for pair, result in self._followed
            if self._uses[id(result)] == 1 and all(self._calls[module] == 1 for module in pair)
        ]


@contextmanager
def _watched(model: nn.Module) -> Iterator[_Watch]:
    watch, handles = _Watch(), []
    try:
        for module in model.modules():
            if type(module) is nn.Conv2d:
                handles.append(module.register_forward_hook(watch.convolved))
            elif type(module) is nn.BatchNorm2d and module.running_mean is not None:
                handles.append(module.register_forward_pre_hook(watch.normalised))
        with watch:
            yield watch
    finally:
        for handle in handles:
            handle.remove()


def _state(modules: list[nn.Module], tensors: list[Tensor]) -> list[tuple[Any, ...]]:
    """What a network is made of, but for values that change in place: modules, hooks, settings, places of tensors.

    ``training`` is left out: the twin does not follow it.
    """
    state: list[tuple[Any, ...]] = [tuple(map(place, tensors))]
    for module in modules:
        space = dict(vars(module))
        space.pop("training", None)
        state.append(tuple(space.values()))
        state += [tuple(space[name].values()) for name in _CONTENTS if space.get(name)]
    return state


def _same(now: list[tuple[Any, ...]], before: list[tuple[Any, ...]]) -> bool:
    if list(map(len, now)) != list(map(len, before)):
        return False
    differ = (
        (a, b)
        for one, other in zip(now, before, strict=True)
        if not all(map(operator.is_, one, other))
        for a, b in zip(one, other, strict=True)
        if a is not b
    )
    return all(type(a) is type(b) and isinstance(a, _PLAIN) and a == b for a, b in differ)
