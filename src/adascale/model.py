"""Any PyTorch classifier, seen as features -> linear head -> logits. The network is left exactly as it was."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from adascale.errors import HeadNotFoundError, InputError
from adascale.types import Head

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_LOCKS_GUARD = threading.Lock()


class _Call(NamedTuple):
    name: str
    module: nn.Module
    given: Any
    result: Any


class Classifier:
    """A network and its head.

    The head is *the module whose output is the logits*: one forward pass with temporary hooks finds it, and the
    proof ``W a + b == logits`` is made on that pass. ``head="layer.name"`` overrides the search; then the logits
    are that layer's output, whatever the network does with them afterwards.
    """

    def __init__(self, model: nn.Module, head: str | None = None) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"The model is a {type(model).__name__}; give a torch.nn.Module that returns logits.")
        self.model = _unwrapped(model)
        self.head_name = head
        if head is not None and head not in dict(self.model.named_modules()):
            raise HeadNotFoundError(
                f"head={head!r} is no module of {_kind(self.model)}. {_advice(_matrix_modules(self.model))}"
            )

    @property
    def device(self) -> torch.device:
        return next(iter(self.model.parameters()), torch.empty(0)).device

    @property
    def dtype(self) -> torch.dtype:
        floats = (p.dtype for p in self.model.parameters() if p.is_floating_point())
        return next(floats, torch.get_default_dtype())

    @property
    def head(self) -> Head:
        """A copy of the last linear layer's values; known from the first batch on (or at once if named)."""
        head = _head_of(self._head_module)
        if head is None:
            raise HeadNotFoundError(
                f"head={self.head_name!r} is a {_kind(self._head_module)} without a (classes, features) weight. "
                f"{_advice(_matrix_modules(self.model))}"
            )
        return Head(head.weight.cpu().clone(), None if head.bias is None else head.bias.cpu().clone())

    @property
    def _head_module(self) -> nn.Module:
        if self.head_name is None:
            raise HeadNotFoundError("The head is not known yet: call locate(images) with one batch first.")
        return self.model.get_submodule(self.head_name)

    def locate(self, images: Tensor) -> Classifier:
        """Find the head on two of these images (or check the named one)."""
        with _borrowed(self.model), torch.inference_mode():
            calls, output = _record(self.model, self.prepare(images[:2]))
        if self.head_name is None:
            self.head_name = _search(calls, output, self.model)
        else:
            _check_named(self.head_name, calls, self.model)
        return self

    def prepare(self, images: Tensor) -> Tensor:
        """The images on the network's device and in its precision, as a copy that it may write into."""
        if not images.is_floating_point():
            raise InputError(
                f"The images are {images.dtype}; the network needs the normalised floats it was trained on. "
                "Apply its preprocessing first (adascale.Preprocess does it for files and arrays)."
            )
        return images.detach().to(self.device, self.dtype, copy=True)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """``(features, logits)`` without any gradient."""
        with _borrowed(self.model), torch.inference_mode():
            return self._run(self.prepare(images))

    def forward_with_gradient(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``(features, logits, g)`` with ``g = d z[y_pred] / d x``. No parameter gradient is computed."""
        with _borrowed(self.model), torch.inference_mode(False), torch.enable_grad():
            leaf = self.prepare(images).requires_grad_()
            features, logits = self._run(leaf.clone())
            if not logits.requires_grad:
                raise InputError(
                    f"{_kind(self.model)} blocks gradients from its logits to its input (no_grad or detach inside); "
                    "use pixels='random', which needs none."
                )
            (gradient,) = torch.autograd.grad(logits.max(1).values.sum(), leaf)
        return features.detach(), logits.detach(), gradient

    def fingerprint(self) -> str:
        """A hash of every parameter and buffer: changes when anything that shapes the output does."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            if isinstance(tensor, Tensor):
                raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(raw.numpy().data)
        return digest.hexdigest()

    def _run(self, images: Tensor) -> tuple[Tensor, Tensor]:
        module, seen = self._head_module, list[tuple[Any, Any]]()

        def keep(_: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            seen.append((_first_tensor(args, kwargs), result))

        handle = module.register_forward_hook(keep, with_kwargs=True)
        try:
            self.model(images)
        finally:
            handle.remove()
        if not seen:
            raise InputError(f"The network never called its head {self.head_name!r} for this input.")
        features, logits = (_rows(value, len(images)) for value in seen[-1])
        if features is None or logits is None:
            raise InputError(f"The head {self.head_name!r} did not see one feature vector for each image of the batch.")
        return features, logits


def _unwrapped(model: nn.Module) -> nn.Module:
    """The network inside DataParallel, DistributedDataParallel and torch.compile."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


@contextmanager
def _borrowed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and frozen parameters for the duration; every flag is put back, whatever happens."""
    with _LOCKS_GUARD:
        lock = _LOCKS.setdefault(model, threading.RLock())
    with lock:
        training = [module for module in model.modules() if module.training]
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        try:
            for module in training:
                module.training = False
            for parameter in trainable:
                parameter.requires_grad_(False)
            with _eager(model):
                yield
        finally:
            for module in training:
                module.training = True
            for parameter in trainable:
                parameter.requires_grad_(True)


def _eager(model: nn.Module) -> Any:
    """Hooks do not reach into compiled code, so networks compiled in place run eagerly meanwhile."""
    compiled = any(getattr(m, "_compiled_call_impl", None) or hasattr(m, "_orig_mod") for m in model.modules())
    stance = getattr(torch.compiler, "set_stance", None)
    return stance("force_eager") if compiled and stance is not None else nullcontext()


def _record(model: nn.Module, images: Tensor) -> tuple[list[_Call], Any]:
    """Every call of a module with a matrix weight during one pass, and the network's output."""
    calls: list[_Call] = []
    handles = []
    try:
        for name, module in _matrix_modules(model):

            def keep(module: nn.Module, args: Any, kwargs: Any, result: Any, name: str = name) -> None:
                calls.append(_Call(name, module, _first_tensor(args, kwargs), result))

            handles.append(module.register_forward_hook(keep, with_kwargs=True))
        output = model(images)
    finally:
        for handle in handles:
            handle.remove()
    return calls, output


def _search(calls: list[_Call], output: Any, model: nn.Module) -> str:
    """The one module whose last output is the network's logits (or becomes them by a final softmax)."""
    last = {call.name: call for call in calls}
    for tensor in _possible_logits(output):
        if not tensor.isfinite().all():
            raise InputError(
                f"{_kind(model)} gives logits that are not finite for these images; check weights and preprocessing."
            )
        logits = tensor.double()
        for call in reversed(last.values()):
            if _gives(call, logits) and _is_affine(call):
                return call.name
    raise HeadNotFoundError(
        f"No single linear layer of {_kind(model)} gives its output, so it has no head to read features from. "
        + _advice([(call.name, call.module) for call in last.values()])
    )


def _check_named(name: str, calls: list[_Call], model: nn.Module) -> None:
    call = next((call for call in reversed(calls) if call.name == name), None)
    if call is None or not _is_affine(call):
        reason = "was not called" if call is None else "does not compute W a + b with one result for each image"
        raise HeadNotFoundError(
            f"head={name!r} of {_kind(model)} {reason}. {_advice([(c.name, c.module) for c in calls])}"
        )


def _possible_logits(output: Any) -> list[Tensor]:
    """The (N, C) tensors in whatever a network returns, the one called logits first."""
    if isinstance(output, Tensor):
        return [output] if output.ndim == 2 and output.is_floating_point() else []
    if isinstance(output, dict):  # Hugging Face's ModelOutput is one
        named = [output["logits"]] if "logits" in output else []
        output = [*named, *output.values()]
    elif not isinstance(output, tuple | list):
        output = [getattr(output, "logits", None)]
    return [tensor for item in output for tensor in _possible_logits(item)] if output is not None else []


def _gives(call: _Call, logits: Tensor) -> bool:
    """Whether the module's result is the logits, or turns into them by a softmax or log-softmax."""
    result = _rows(call.result, len(logits))
    if result is None or result.shape != logits.shape:
        return False
    result = result.double()
    forms = (result, result.log_softmax(1), result.softmax(1))
    return any(torch.allclose(form, logits, rtol=1e-4, atol=1e-7) for form in forms)


def _is_affine(call: _Call) -> bool:
    """The proof: the result equals ``W a + b`` within what the precision allows."""
    head, features, result = _head_of(call.module), _rows(call.given), _rows(call.result)
    if head is None or features is None or result is None:
        return False
    if features.shape[1] != head.weight.shape[1] or result.shape != (len(features), len(head.weight)):
        return False
    expected = head(features)
    exact = result.dtype in (torch.float32, torch.float64)
    slack = (1e-3 if exact else 3e-2) * max(float(expected.abs().max()), 1e-6)
    return bool(((expected - result.double()).abs() <= slack).all())


def _rows(value: Any, rows: int | None = None) -> Tensor | None:
    """(N, D) of a tensor with one vector for each image, also (N, D, 1, 1) and (N, 1, D); else None."""
    if not isinstance(value, Tensor) or value.ndim < 2 or (rows is not None and len(value) != rows):
        return None
    flat = value.flatten(1)
    return flat if flat.shape[1] == max(value.shape[1:]) else None


def _first_tensor(args: Any, kwargs: Any) -> Any:
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)


def _head_of(module: nn.Module) -> Head | None:
    weight, bias = _matrix(module), getattr(module, "bias", None)
    return None if weight is None else Head(weight.detach(), bias.detach() if isinstance(bias, Tensor) else None)


def _matrix(module: nn.Module) -> Tensor | None:
    """The module's (C, D) weight; a 1x1 convolution has one too."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        return None
    if weight.ndim > 2 and set(weight.shape[2:]) == {1}:
        weight = weight.flatten(1)
    return weight if weight.ndim == 2 else None


def _matrix_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, module) for name, module in model.named_modules() if _matrix(module) is not None]


def _advice(modules: list[tuple[str, nn.Module]]) -> str:
    lines = [
        f"{name!r} ({_kind(module)}, {weight.shape[1]} -> {weight.shape[0]})"
        for name, module in reversed(modules[-6:])
        if (weight := _matrix(module)) is not None
    ]
    candidates = ", ".join(lines) if lines else "none: it has no linear layer at all"
    return f"Candidates, last first: {candidates}. Name the layer that ends in your classes: head='...'."


def _kind(module: nn.Module) -> str:
    return type(module).__name__
