"""The procedure of AdaSCALE's published code, step by step, to compare with. Our own words for it.

One forward pass, a backward pass into the input *and every parameter*, a top-k mask of pixels, a second full forward
pass, a top-k of activations for Q and one for C_o, the empirical distribution through NumPy, the scaled activations
through the head.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adascale.core.types import Head


class Authors:
    """AdaSCALE-A of a network in evaluation mode, as it comes out of training: its parameters want gradients."""

    def __init__(self, model: nn.Module, head_name: str, head: Head, p_min: float = 80, p_max: float = 85) -> None:
        self.model, self.head, self.p_min, self.p_max = model, head, p_min, p_max
        self._layer = model.get_submodule(head_name)
        self.reference = np.zeros(1)

    def close(self) -> None:
        self.model.zero_grad()

    def fit(self, images: Tensor) -> Authors:
        self.reference = np.sort(self.shift(images)[1].numpy())
        return self

    def score(self, images: Tensor) -> Tensor:
        """Higher = more OOD."""
        features, statistic = self.shift(images)
        share = np.searchsorted(self.reference, statistic.numpy(), side="right") / len(self.reference)
        percentile = self.p_min + (1 - share) * (self.p_max - self.p_min)
        keep = features.shape[1] - np.round(features.shape[1] * percentile / 100).astype(int)
        mass = features.sort(dim=1, descending=True).values.cumsum(1)
        kept = mass.gather(1, torch.from_numpy(keep)[:, None] - 1)
        scaled = features * (mass[:, -1:] / kept).exp()
        return -F.linear(scaled, self.head.weight, self.head.bias).logsumexp(1)

    def shift(self, images: Tensor) -> tuple[Tensor, Tensor]:
        inputs = images.clone().requires_grad_()
        self.model.zero_grad()
        features, logits = self._forward(inputs)
        logits.max(1).values.sum().backward()  # type: ignore[no-untyped-call]
        assert inputs.grad is not None
        size = inputs.grad.abs().flatten(1)
        lowest = size.topk(int(size.shape[1] * 0.05), dim=1, largest=False).indices
        mask = torch.zeros_like(size).scatter_(1, lowest, 1.0).view_as(inputs)
        with torch.no_grad():
            moved, _ = self._forward(images + 0.5 * inputs.grad.sign() * mask)
        features, moved = features.detach().relu(), moved.relu()
        first = features.topk(max(1, features.shape[1] // 100), dim=1).indices
        second = features.topk(max(1, features.shape[1] // 20), dim=1).indices
        shift = (moved.gather(1, first) - features.gather(1, first)).abs().sum(1)
        return features, 10 * shift + moved.gather(1, second).sum(1)

    def _forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        seen: list[Tensor] = []
        with self._layer.register_forward_pre_hook(lambda _, args: seen.append(args[0])):
            logits = self.model(images)
        return seen[0].flatten(1), logits
