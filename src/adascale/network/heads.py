"""The search for the last linear layer of any network, by behaviour: it is the module whose output *is* the logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from adascale.core.errors import HeadNotFoundError, InputError
from adascale.core.types import Head
from adascale.maths.rounding import alike


class Call(NamedTuple):
    """A call of a module. ending: what the network makes of the result: nothing, ``softmax``, ``sigmoid`` ..."""

    name: str
    module: nn.Module
    given: Any
    result: Any
    ending: str = ""


def record(
    model: nn.Module, images: Tensor, modules: list[tuple[str, nn.Module]] | None = None
) -> tuple[list[Call], Any]:
    """Every call of these modules during one pass [default: those with a matrix weight], and the network's output."""
    calls: list[Call] = []
    handles = []
    try:
        for name, module in matrix_modules(model) if modules is None else modules:
            if isinstance(module, torch.jit.ScriptModule):
                continue  # it takes no hooks

            def keep(module: nn.Module, args: Any, kwargs: Any, result: Any, name: str = name) -> None:
                copy = result.clone() if isinstance(result, Tensor) else result  # the network may write into it later
                calls.append(Call(name, module, first_tensor(args, kwargs), copy))

            handles.append(module.register_forward_hook(keep, with_kwargs=True))
        output = model(images)
    finally:
        for handle in handles:
            handle.remove()
    return calls, output


@contextmanager
def stopped(head: nn.Module, shape: tuple[int, ...]) -> Iterator[list[Any]]:
    """The head keeps its inputs in the list and gives zeros of this shape for each image, which nothing reads."""
    seen, own_forward = list[Any](), vars(head).get("forward")

    def keep(*args: Any, **kwargs: Any) -> Tensor:
        given = first_tensor(args, kwargs)
        seen.append(given)
        zeros: Tensor = given.new_zeros(len(given), *shape)
        return zeros

    head.forward = keep
    try:
        yield seen
    finally:
        del head.forward
        if own_forward is not None:
            head.forward = own_forward


def find_head(calls: list[Call], output: Any, model: nn.Module) -> Call:
    """The one module whose last output is the network's logits (or becomes its output by a final softmax).

    A sigmoid at the end is refused, unless there is one logit: which classes exclude each other is then not known.
    """
    last = {call.name: call for call in calls}
    found: dict[str, Call] = {}
    if not (answers := logits_in(output)) and (shown := output_in_words(output)):
        raise HeadNotFoundError(
            f"The output of {kind(model)} is {shown}: this is not a classifier, whose output is one row of logits for "
            "each image, (N, classes). Give a classifier; for one inside it, pass that part, or a wrapper around it."
        )
    for tensor in answers:
        if not tensor.isfinite().all():
            raise InputError(
                f"{kind(model)} gives logits that are not finite for these images; check weights and preprocessing."
            )
        endings = ((call, _ending(call, tensor)) for call in reversed(last.values()))
        match = next(((call, end) for call, end in endings if end is not None and _is_affine(call)), None)
        if match is not None:
            found[match[0].name] = match[0]._replace(ending=match[1])
    if len(found) == 1:
        call = found.popitem()[1]
        task = getattr(getattr(model, "config", None), "problem_type", None)  # Hugging Face networks say it
        if task == "multi_label_classification":
            raise HeadNotFoundError(multi_label(f"{kind(model)} has problem_type={task!r}", call.name))
        if call.ending == "sigmoid" and call.result.flatten(1).shape[1] > 1:
            raise HeadNotFoundError(multi_label(f"{kind(model)} ends in a sigmoid", call.name))
        return call
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
    """The (N, C) tensors in whatever a network returns; only the one called ``logits`` where there is one.

    A network with one logit may return (N,), which is (N, 1) here.
    """
    if isinstance(output, Tensor):
        output = output[:, None] if output.ndim == 1 and len(output) else output
        return [output] if output.ndim == 2 and output.is_floating_point() else []
    is_mapping = isinstance(output, Mapping)  # Hugging Face's ModelOutput is one
    logits = output.get("logits") if is_mapping else getattr(output, "logits", None)
    if logits is not None:
        return logits_in(logits)
    items = output.values() if is_mapping else output if isinstance(output, tuple | list) else ()
    if not is_mapping and items and all(isinstance(item, Mapping) for item in items):
        return []  # one dict for each image, as of detection networks
    rows = (item for item in items if not (isinstance(item, Tensor) and item.ndim < 2))
    return [tensor for item in rows for tensor in logits_in(item)]


def output_in_words(output: Any) -> str:
    """The shapes in what a network returns, in words; empty if it holds no tensor. At most three are named."""
    if isinstance(output, Tensor):
        return f"of shape {tuple(output.shape)}"
    if isinstance(output, Mapping):
        inner = [f"{key} {text}" for key, value in output.items() if (text := output_in_words(value))]
        return f"a dict with {', '.join(inner[:3])}" if inner else ""
    if isinstance(output, tuple | list):
        inner = [text for value in output if (text := output_in_words(value))]
        return f"a {type(output).__name__} of {len(output)}, the first {inner[0]}" if inner else ""
    return ""


def multi_label(what: str, head: str) -> str:
    """Why a network that gives each class a probability of its own is refused, and what to do."""
    return (
        f"{what}: each class has a probability of its own, and several can be true at once (multi-label), but the "
        f"methods here compare classes that exclude each other. If exactly one is true for each image, return the "
        f"logits before the sigmoid, or pass head={head!r}; otherwise make a network that returns the logit of one "
        "class, (N, 1), for each class that you want to watch."
    )


def remarks(call: Call, model: nn.Module) -> list[str]:
    """What is not as one might assume about this head: logits before a softmax, or one logit as two classes."""
    texts = []
    if call.ending:
        texts.append(f"{kind(model)} ends in a {call.ending}; the logits are those before it.")
    if call.result.flatten(1).shape[1] == 1:
        texts.append(
            f"{kind(model)} has one logit z, which is taken as two classes, 0 and 1, with the logits "
            "[-z/2, z/2]: the probabilities of [0, z], with both classes alike."
        )
    return texts


def two_classes(values: Tensor, dim: int = 0) -> Tensor:
    """One logit ``z``, or its weights, as those of two classes: ``[-z/2, z/2]``, along this dimension.

    The probabilities are those of ``[0, z]``: ``softmax([-z/2, z/2])[1] = sigmoid(z)``. But with ``[0, z]`` the energy
    and the largest logit of an image are near 0 when the network is sure of class 0, as they are when it is unsure: no
    method that uses them could tell these apart. Halves treat the two classes alike.
    """
    return torch.cat([-values / 2, values / 2], dim)


def _ending(call: Call, logits: Tensor) -> str | None:
    """What turns the module's result into the network's output: nothing, a softmax, a sigmoid; None: something else."""
    result = rows(call.result, len(logits))
    if result is None or result.shape != logits.shape:
        return None
    slack = slack_of(logits)
    result, logits = result.double(), logits.double()
    forms = {"": result, "log-softmax": result.log_softmax(1), "softmax": result.softmax(1)}
    if result.shape[1] == 1:  # one number has no softmax
        forms = {"": result}
    forms["sigmoid"] = result.sigmoid()
    same = (name for name, form in forms.items() if torch.allclose(form, logits, rtol=slack, atol=slack / 1000))
    return next(same, None)


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


def copied(head: Head) -> Head:
    """Its values as they are now, on the processor; those of one logit as of two classes."""
    parts = [None if part is None else part.cpu().clone() for part in (head.weight, head.bias)]
    if len(head.weight) == 1:
        parts = [None if part is None else two_classes(part) for part in parts]
    weight, bias = parts
    assert weight is not None
    return Head(weight, bias)


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
