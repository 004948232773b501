"""ISH, intermediate tensor shaping (Xu et al., 2024): fine-tuning that gives clear samples more weight.

Only the weight gradient of the last linear layer changes: it is taken with a reshaped copy ``a'`` of the layer's input
``a``, which keeps the 15 % of the entries with the largest absolute values, times ``exp(sum(a) / sum(kept))``, and is
zero elsewhere. The forward pass, the input gradient and the bias gradient are those of the plain layer:

    dW = g^T a'      db = sum of g over samples      da = g W
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adascale.core.errors import InputError


def reshaped(inputs: Tensor, keep: float = 15.0) -> Tensor:
    """``a'`` of each row: the ``keep`` percent with the largest absolute values, times exp(sum / kept sum).

    If the kept entries of a row add up to zero, there is no such ratio and they stay as they are. For non-negative
    inputs the ratio is at most width / count; this bound keeps the exponential finite where signed entries cancel.
    """
    width = inputs.shape[-1]
    count = max(1, width - round(width * (100 - keep) / 100))
    chosen = inputs.abs().topk(count, dim=-1).indices
    kept = torch.zeros_like(inputs).scatter(-1, chosen, inputs.gather(-1, chosen))
    total = kept.sum(-1, keepdim=True)
    ratio = (inputs.sum(-1, keepdim=True) / total).clamp(-width / count, width / count)
    return kept * torch.where(total == 0, torch.ones_like(total), ratio.exp())


class ISHLinear(torch.autograd.Function):
    """``a W^T + b`` whose weight gradient sees the reshaped input."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, keep: float) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.keep = keep
        return F.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (gradient,), (inputs, weight) = gradients, ctx.saved_tensors
        needs, rows = ctx.needs_input_grad, gradient.flatten(0, -2)
        to_input = gradient @ weight if needs[0] else None
        to_weight = rows.T @ reshaped(inputs, ctx.keep).flatten(0, -2) if needs[1] else None
        to_bias = rows.sum(0) if needs[2] else None
        return to_input, to_weight, to_bias, None


_linear: Callable[[Tensor, Tensor, Tensor | None, float], Tensor] = ISHLinear.apply


@contextmanager
def ish(head: nn.Module | None, keep: float = 15.0) -> Iterator[None]:
    """Train the layer by ISH within this context; its parameters, name and output stay the same."""
    if not isinstance(head, nn.Linear):
        raise InputError(
            f"ISH changes the gradient of a linear last layer; this network ends in {type(head).__name__}."
        )
    if not 0 < keep <= 100:
        raise InputError(f"keep={keep}; it is the percentage of features that ISH keeps, above 0 and at most 100.")

    def forward(inputs: Tensor) -> Tensor:
        with torch.autocast(inputs.device.type, enabled=False):  # exp would overflow in half precision
            return _linear(inputs.to(head.weight.dtype), head.weight, head.bias, keep)

    head.forward = forward  # type: ignore[assignment]
    try:
        yield
    finally:
        del head.forward
