"""The search for the last linear layer of any network, by behaviour: it is the module whose output *is* the logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from adascale.core.errors import HeadNotFoundError, InputError
from adascale.core.types import Head
from adascale.maths.rounding import alike


class Call(NamedTuple):
    name: str
    module: nn.Module
    given: Any
    result: Any


def record(
    model: nn.Module, images: Tensor, modules: list[tuple[str, nn.Module]] | None = None
) -> tuple[list[Call], Any]:
    """Every call of these modules during one pass [default: those with a matrix weight], and the network's output."""
    calls: list[Call] = []
    handles = []
    try:
        for name, module in matrix_modules(model) if modules is None else modules:

            def keep(module: nn.Module, args: Any, kwargs: Any, result: Any, name: str = name) -> None:
                copy = result.clone() if isinstance(result, Tensor) else result  # the network may write into it later
                calls.append(Call(name, module, first_tensor(args, kwargs), copy))

            handles.append(module.register_forward_hook(keep, with_kwargs=True))
        output = model(images)
    finally:
        for handle in handles:
            handle.remove()
    return calls, output


def find_head(calls: list[Call], output: Any, model: nn.Module) -> Call:
    """The one module whose last output is the network's logits (or becomes them by a final softmax)."""
    last = {call.name: call for call in calls}
    found: dict[str, Call] = {}
    for tensor in logits_in(output):
        if not tensor.isfinite().all():
            raise InputError(
                f"{kind(model)} gives logits that are not finite for these images; check weights and preprocessing."
            )
        match = next((c for c in reversed(last.values()) if _gives(c, tensor) and _is_affine(c)), None)
        if match is not None:
            found[match.name] = match
    if len(found) == 1:
        return found.popitem()[1]
    candidates = [(c.name, c.module) for c in (found or last).values()] or matrix_modules(model)
    problem = "no single linear layer that it calls gives its output"
    if found:
        problem = "several of its outputs come straight from a linear layer"
    raise HeadNotFoundError(f"Which layer is the head of {kind(model)}? Here {problem}. {advice(candidates)}")


def named_head(name: str, calls: list[Call], model: nn.Module) -> Call:
    call = {entry.name: entry for entry in calls}.get(name)
    if call is None or not _is_affine(call):
        reason = "was not called" if call is None else "does not compute W a + b with one result for each image"
        raise HeadNotFoundError(
            f"head={name!r} of {kind(model)} {reason}. {advice([(c.name, c.module) for c in calls])}"
        )
    return call


def logits_in(output: Any) -> list[Tensor]:
    """The (N, C) tensors in whatever a network returns; only the one called ``logits`` where there is one."""
    if isinstance(output, Tensor):
        return [output] if output.ndim == 2 and output.is_floating_point() else []
    is_mapping = isinstance(output, Mapping)  # Hugging Face's ModelOutput is one
    logits = output.get("logits") if is_mapping else getattr(output, "logits", None)
    if logits is not None:
        return logits_in(logits)
    items = output.values() if is_mapping else output if isinstance(output, tuple | list) else ()
    return [tensor for item in items for tensor in logits_in(item)]


def _gives(call: Call, logits: Tensor) -> bool:
    """Whether the module's result is the logits, or turns into them by a softmax or log-softmax."""
    result = rows(call.result, len(logits))
    if result is None or result.shape != logits.shape:
        return False
    slack = slack_of(logits)
    result, logits = result.double(), logits.double()
    forms = (result, result.log_softmax(1), result.softmax(1))
    return any(torch.allclose(form, logits, rtol=slack, atol=slack / 1000) for form in forms)


def _is_affine(call: Call) -> bool:
    """The proof: the result equals ``W a + b`` up to rounding."""
    head, features, result = head_of(call.module), rows(call.given), rows(call.result)
    if head is None or features is None or result is None:
        return False
    if features.shape[1] != head.weight.shape[1] or result.shape != (len(features), len(head.weight)):
        return False
    return alike(result, head(features), 10 * slack_of(result))


def slack_of(tensor: Tensor) -> float:
    """The relative difference that rounding may make to a value of this precision."""
    return 1e-4 if tensor.dtype in (torch.float32, torch.float64) else 1e-2


def rows(value: Any, count: int | None = None) -> Tensor | None:
    """(N, D) of a tensor with one vector for each image, also (N, D, 1, 1) and (N, 1, D); else None."""
    if not isinstance(value, Tensor) or value.ndim < 2 or (count is not None and len(value) != count):
        return None
    flat = value.flatten(1)
    return flat if flat.shape[1] == max(value.shape[1:]) else None


def first_tensor(args: Any, kwargs: Any) -> Any:
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)


def head_of(module: nn.Module) -> Head | None:
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


def matrix_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, module) for name, module in model.named_modules() if _matrix(module) is not None]


def advice(modules: list[tuple[str, nn.Module]]) -> str:
    lines = [
        f"{name!r} ({kind(module)}, {weight.shape[1]} -> {weight.shape[0]})"
        for name, module in reversed(modules[-6:])
        if (weight := _matrix(module)) is not None
    ]
    candidates = ", ".join(lines) if lines else "none: it has no linear layer at all"
    return f"Candidates, last first: {candidates}. Name the layer that ends in your classes: head='...'."


def kind(module: nn.Module) -> str:
    return type(module).__name__
