"""A network as tracers and exporters need it: a private copy that returns features and logits, without hooks."""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from adascale.core.errors import InputError
from adascale.network import heads
from adascale.network.running import borrowed

if TYPE_CHECKING:
    from adascale.network.classifier import Classifier


class Traceable(nn.Module):
    """``images -> (features, logits)`` on the CPU: a frozen copy of a located `Classifier`'s network.

    The head's input is kept; the logits are ``W a + b`` with the head that the methods
    know, so that one logit becomes two classes here too. What the network makes of its logits afterwards is not
    computed. The copy shares nothing with the original.
    """

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        if classifier.dtype != torch.float32 or classifier.precision is not None:
            runs_in = classifier.precision or str(classifier.dtype).removeprefix("torch.")
            raise InputError(
                f"The network runs in {runs_in}; only float32 can be exported or given to another engine. "
                "Call .float() on it, leave precision= out, and fit again."
            )
        head = classifier.head  # refuses a network whose head is not known yet
        name = str(classifier.head_name)
        with borrowed(classifier.model):
            self.network = copy.deepcopy(classifier.model).eval().requires_grad_(False).cpu()
        self._seen = _Seen()
        self.network.set_submodule(name, _Kept(self.network.get_submodule(name), self._seen))
        self.register_buffer("weight", head.weight.detach().clone().contiguous())
        self.register_buffer("bias", head.offset.to(head.weight.dtype))
        self.weight: Tensor
        self.bias: Tensor

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        self.network(images)
        features = heads.rows(self._seen.taken())
        if features is None:
            raise InputError("The head did not see one feature vector for each image; this network cannot be traced.")
        return features, nn.functional.linear(features, self.weight, self.bias)


class _Seen:
    """The last input of the head. Tracers take lists and tensors among a module's attributes for its state, and
    replace them; an object of its own is left alone.
    """

    value: Any = None

    def taken(self) -> Any:
        value, self.value = self.value, None
        return value


class _Kept(nn.Module):
    """In the place of the head: the head itself, whose input is kept. Its result is left out of a trace if nothing
    reads it.
    """

    def __init__(self, head: nn.Module, seen: _Seen) -> None:
        super().__init__()
        self.head, self._seen = head, seen

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._seen.value = heads.first_tensor(args, kwargs)
        return self.head(*args, **kwargs)


def exported_program(network: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """The network as a program of PyTorch's operations for any number of images; it shares the parameters.

    The exporter first runs the network's Python code with symbolic sizes; code that asks for ``len(x)`` fixes the batch
    size there, and is read by the compiler instead. Code that does one thing for few images and another for many is
    refused. example: two or more inputs.
    """
    if len(example) < 2:
        raise InputError(
            f"The example is a batch of {len(example)}; tracing a free batch size needs two or more inputs."
        )
    errors = []
    for strict in (False, True):
        try:
            with quiet(), plain_attention(), torch.no_grad():
                shapes = ({0: torch.export.Dim("batch")},)
                return torch.export.export(network, (example,), dynamic_shapes=shapes, strict=strict)
        except Exception as error:  # the exporter lets every error of the network's code through
            errors.append(error)
    raise untraceable(_name(network), errors[0]) from errors[0]


def untraceable(name: str, error: Exception) -> InputError:
    """The refusal of what the exporter does not take, with its reason."""
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return InputError(
        f"PyTorch cannot trace {name} with a free number of images ({reason} ...). A forward that depends on values or "
        "on the size of the batch has to be rewritten; or keep the detector in PyTorch."
    )


def as_graph(network: nn.Module, example: Tensor) -> fx.GraphModule:
    """The `exported_program` as a module, which has the name of the network."""
    made = exported_program(network, example).module(check_guards=False)
    # The exporter's own kind of module refuses eval().
    return fx.GraphModule(made, made.graph, class_name=_name(network)).eval()


def _name(network: nn.Module) -> str:
    return heads.kind(network.network if isinstance(network, Traceable) else network)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention by matrix products and softmax: the fused forms have no derivative, or none that exports."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the exporters' own messages: what matters is checked afterwards, by running the file."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        # It prints a graph of the network where it fails.
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
