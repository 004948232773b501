"""Running a network: the layout, pieces and precision that are fast, and a guard that gives it back as it was."""

from __future__ import annotations

import copy
import operator
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.precisions import PRECISIONS, check_runs
from adascale.core.types import Centres, Goal

# Larger batches are slower on a processor: their activations do not fit into its caches, and the memory allocator
# returns large blocks to the system after every layer. A gradient also keeps all activations of a piece in memory.
_FEWEST_AT_ONCE = 16
_VALUES_AT_ONCE = 2**17
_ACTIVATIONS_AT_ONCE = 2**22  # values of the largest activation


def at_once(images: Tensor, model: nn.Module, largest: float | None = None) -> int:
    """How many of these images go through the network together: all on a GPU, or where they share statistics.

    largest: the number of values of the largest activation for each value of an image, if that is known.
    """
    if model_device(model).type != "cpu" or shares_statistics(model):
        return max(1, len(images))
    values = max(1, images[:1].numel())
    if largest is None:
        return max(_FEWEST_AT_ONCE, _VALUES_AT_ONCE // values)
    most = max(1, round(_ACTIVATIONS_AT_ONCE / (largest * values)))
    pieces = max(1, -(-len(images) // most))
    return max(1, -(-len(images) // pieces))  # pieces of one size


def model_device(model: nn.Module) -> torch.device:
    return next(chain(model.parameters(), model.buffers()), torch.empty(0)).device


def model_dtype(model: nn.Module) -> torch.dtype:
    tensors = chain(model.parameters(), model.buffers())
    return next((t.dtype for t in tensors if t.is_floating_point()), torch.get_default_dtype())


def shares_statistics(model: nn.Module) -> bool:
    """Whether the images of a batch are normalised by statistics that they share."""
    norms = (module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm))
    return any(norm.running_mean is None for norm in norms)


def likes_channels_last(model: nn.Module) -> bool:
    """Whether the network is convolutional: with the channels last it then takes less time on a processor."""
    kinds = [type(module) for module in model.modules()]
    return kinds.count(nn.Conv2d) >= max(1, kinds.count(nn.Linear))


def autocast(device: torch.device, precision: str | None) -> AbstractContextManager[Any]:
    """Matrix products and convolutions in this precision; None leaves the network's own.

    A precision that does not exist, or that does not run on this processor, is refused.
    """
    if precision is None:
        return nullcontext()
    if precision not in PRECISIONS:
        raise InputError(f"precision={precision!r}; choose {' or '.join(PRECISIONS)}, or leave it out.")
    check_runs(precision, f"precision={precision!r}", device)
    return torch.autocast(device.type, PRECISIONS[precision])


Backend = str | Callable[..., Any]


class Compiled:
    """The largest parts of a network that do not contain its head, compiled. Hooks still reach the head."""

    def __init__(self, model: nn.Module, head: str, backend: Backend) -> None:
        parts = _parts(model, model.get_submodule(head))
        self._calls = {part: torch.compile(_called(part), backend=backend) for part in parts}

    @contextmanager
    def active(self) -> Iterator[None]:
        before = {part: part._compiled_call_impl for part in self._calls}
        try:
            for part, call in self._calls.items():
                part._compiled_call_impl = call
            yield
        finally:
            for part, old in before.items():
                part._compiled_call_impl = old
                if old is None:
                    del part._compiled_call_impl  # the class has one


def _called(part: nn.Module) -> Callable[..., Any]:
    """A function that calls this part and has a code object of its own.

    The compiler skips torch's own frames and counts its recompilations by code object.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return part._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]

    call.__code__ = call.__code__.replace(co_name=f"call_{type(part).__name__}")
    return call


def _parts(module: nn.Module, head: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        callable_ = type(child).forward is not nn.Module.forward and any(True for _ in child.parameters())
        if not any(part is head for part in child.modules()) and callable_:
            yield child
        elif child is not head:
            yield from _parts(child, head)


_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_BORROWED: WeakSet[nn.Module] = WeakSet()
_GUARD = threading.Lock()


def _after_fork() -> None:
    """The threads that held these locks are not in the child."""
    global _GUARD
    _GUARD = threading.Lock()
    _LOCKS.clear()
    _BORROWED.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def held(model: nn.Module) -> threading.RLock:
    """The lock of a network, as a context: only one thread at a time holds it, and may take it again."""
    with _GUARD:
        return _LOCKS.setdefault(model, threading.RLock())


@contextmanager
def borrowed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and frozen parameters for the duration; every flag is put back, whatever happens.

    Only one thread at a time holds a network. Within the guard, the same thread may enter it again at no cost. A
    network on a processor whose own parameters have a precision that does not run there is refused.
    """
    with held(model):
        if model in _BORROWED:
            yield
            return
        _BORROWED.add(model)
        try:
            with _frozen(model), _eager(model):
                yield
        finally:
            _BORROWED.discard(model)


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    check_precision(model)
    modules = list(model.modules())
    training = [module for module in modules if module.training]
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with tidied(modules):
        try:
            for module in training:
                module.training = False
            for parameter in trainable:
                parameter.requires_grad_(False)
            yield
        finally:
            for module in training:
                module.training = True
            for parameter in trainable:
                parameter.requires_grad_(True)


def check_precision(model: nn.Module) -> None:
    """Refuse a network on a processor whose own parameters have a precision that does not run there."""
    types = {parameter.dtype for parameter in model.parameters() if parameter.device.type == "cpu"}
    for precision in [name for name, dtype in PRECISIONS.items() if dtype in types]:
        check_runs(precision, f"{type(model).__name__} has {precision} parameters", torch.device("cpu"))


@contextmanager
def tidied(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Afterwards no module keeps a tensor that a pass left on it."""
    attributes = [(space, dict(space)) for module in modules for space in (vars(module), module._buffers)]
    try:
        yield
    finally:
        for space, before in attributes:
            _put_back_tensors(space, before)


def _put_back_tensors(space: dict[str, Any], before: dict[str, Any]) -> None:
    """Remove the tensors that the pass left on a module (lazy caches, recomputed weights) and restore the old ones.

    The new ones were made without gradients, or in inference mode, and training could not use them.
    """
    if len(space) == len(before) and all(map(operator.is_, space.values(), before.values())):
        return
    for name in {*space, *before}:
        new, old = space.get(name), before.get(name)
        if new is not old and (isinstance(new, Tensor) or isinstance(old, Tensor)):
            if name in before:
                space[name] = old
            else:
                del space[name]


def _eager(model: nn.Module) -> Any:
    """Hooks do not reach into compiled code, so networks that were compiled in place run eagerly meanwhile."""
    compiled = any(getattr(m, "_compiled_call_impl", None) or hasattr(m, "_orig_mod") for m in model.modules())
    stance = getattr(torch.compiler, "set_stance", None)
    return stance("force_eager") if compiled and stance is not None else nullcontext()


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside DataParallel, DistributedDataParallel and torch.compile."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise InputError(
            f"copy=True: {type(model).__name__} cannot be copied ({error}); give a copy of your own."
        ) from error


def objective(features: Tensor, logits: Tensor, goal: Goal) -> Tensor:
    """What a pass with gradients differentiates: ``z[y_pred]``; ``-T`` times the log-softmax of ``z / T`` there; for
    class centres, what has the gradient of the distance up to a positive factor for each image.
    """
    if isinstance(goal, Centres):
        slope = goal.slope(features)
        # The factor keeps the gradient of every image within the range of half precision; its signs stay the same.
        slope = slope / slope.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        return (features * slope.to(features.dtype)).sum()
    if goal is None:
        return logits.max(1).values.sum()
    # The factor T and at least float32 keep the gradient from vanishing in half precision; its signs stay the same.
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return -goal * (exact / goal).log_softmax(1).max(1).values.sum()
