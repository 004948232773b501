"""Networks with input gradients as graphs of forward operations, which exporters take."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from adascale.core.errors import InputError
from adascale.core.types import Goal, View
from adascale.export import derivatives
from adascale.extraction.perturb import moved, perturb, random_signs
from adascale.network.heads import kind
from adascale.network.running import objective
from adascale.network.traceable import as_graph, plain_attention

_RANDOM = "use pixels='random', which needs no gradient."


def with_gradients(network: nn.Module, example: Tensor, goals: Sequence[Goal]) -> fx.GraphModule:
    """``x -> (features, logits, *gradients)``, one input gradient for each goal, by forward operations alone.

    ``network(x)`` gives ``(features, logits)``; it is frozen, in evaluation mode, float32 and on the CPU. The result
    shares its parameters. ``example``: a batch of two or more inputs; the batch size of the result is free, the other
    sizes are those of the example. The goals are those of `Classifier.forward_with_gradients`.
    """
    graph = as_graph(network, example)

    def passes(images: Tensor) -> tuple[Tensor, ...]:
        leaf = images.detach().requires_grad_()
        with torch.enable_grad():
            features, logits = graph(leaf)
            if not logits.requires_grad:
                raise InputError(f"{kind(network)} blocks gradients from its logits to its input; {_RANDOM}")
            gradients = [
                torch.autograd.grad(objective(features, logits, goal), leaf, retain_graph=True)[0] for goal in goals
            ]
        return features.detach(), logits.detach(), *gradients

    return _forward_only(_traced(passes, example), kind(network))


class Perturbation(nn.Module):
    """`perturb` with one view for inputs of one shape (channels, height, width), as a module that exporters take."""

    signs: Tensor | None

    def __init__(self, view: View, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.view = view
        # The draw is made here: an exporter would replace it by one of its own.
        drawn = None if view.needs_gradient else random_signs(shape, view.fraction, view.seed).clone()
        self.register_buffer("signs", drawn)

    def forward(self, images: Tensor, gradient: Tensor | None = None) -> Tensor:
        return perturb(images, gradient, self.view) if self.signs is None else moved(images, self.signs, self.view)


def _traced(function: Callable[[Tensor], tuple[Tensor, ...]], example: Tensor) -> fx.GraphModule:
    """The operations that the function makes for a batch of any size, derivatives rewritten by `derivatives.table`."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    free = [DimDynamic.DYNAMIC] + [DimDynamic.STATIC] * (example.ndim - 1)
    symbolic = mode.from_tensor(example, symbolic_context=StatelessSymbolicContext(dynamic_sizes=free))
    with plain_attention():
        return make_fx(function, derivatives.table(), tracing_mode="symbolic")(symbolic)


def _forward_only(graph: fx.GraphModule, name: str) -> fx.GraphModule:
    """The graph without detachments and dead operations; refused where a backward operation is left."""
    for node in [node for node in graph.graph.nodes if node.target is torch.ops.aten.detach.default]:
        node.replace_all_uses_with(node.args[0])
    graph.graph.eliminate_dead_code()
    graph.recompile()
    left = sorted({str(node.target) for node in graph.graph.nodes if "backward" in str(node.target)})
    if left:
        operation = re.sub(r"^aten\._?(.*?)(_backward.*)?\.\w+$", r"\1", left[0])
        raise InputError(f"{name}: the gradient of {operation} cannot be written with forward operations; {_RANDOM}")
    return graph.eval()
