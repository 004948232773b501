"""A network as tracers and exporters need it: a private copy that returns features and logits, without hooks."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

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
