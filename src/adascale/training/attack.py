"""Projected gradient descent within a bound on every pixel (Madry et al., 2018), for training and robust accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.images.loader import load_batches
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.network.heads import logits_in
from adascale.network.running import borrowed


@dataclass(frozen=True)
class PGD:
    """L-infinity attack on the cross-entropy of the true class.

    eps: the furthest that a pixel may move, on the scale from 0 to 1. steps: the number of gradient steps, each of
    size ``2.5 eps / steps``. The start is a seeded random point of the ball; results stay within the ball and within
    the range of pixel values.
    """

    eps: float = 0.01
    steps: int = 7
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.eps <= 1:
            raise InputError(f"eps={self.eps}; pixels lie between 0 and 1, so eps must be above 0 and at most 1.")
        if self.steps < 1:
            raise InputError(f"steps={self.steps}; an attack needs at least one.")

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, preprocess: Preprocess, part: int = 0
    ) -> Tensor:
        """Adversarial versions of these normalised images. The network runs in evaluation mode and is left unchanged.

        part: the number of the batch, so that each batch has a random start of its own.
        """
        mean, std = (torch.tensor(values).view(-1, 1, 1).to(images) for values in (preprocess.mean, preprocess.std))
        eps = self.eps / std
        lowest = torch.maximum(images - eps, (0 - mean) / std)
        highest = torch.minimum(images + eps, (1 - mean) / std)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + part)
        start = torch.rand(images.shape, generator=generator, dtype=torch.float32).to(images) * 2 - 1
        moved = (images + start * eps).clamp(lowest, highest)
        with borrowed(model):
            for _ in range(self.steps):
                leaf = moved.detach().requires_grad_()
                with torch.enable_grad():
                    loss = F.cross_entropy(logits_of(model(leaf)), labels, reduction="sum")
                    gradient = torch.autograd.grad(loss, leaf)[0]
                moved = (moved + 2.5 / self.steps * eps * gradient.sign()).clamp(lowest, highest)
        return moved.detach()


def accuracy(
    model: nn.Module, images: ImageSet, preprocess: Preprocess, attack: PGD | None = None, batch_size: int = 128
) -> float:
    """The share of the readable images that the network classifies correctly, as they are or under an attack."""
    if images.labels is None:
        raise InputError("Accuracy needs the classes of the images; give a list or an .npz with labels.")
    device = next(model.parameters()).device
    right = total = 0
    for part, batch in enumerate(load_batches(images, preprocess, batch_size)):
        if batch.labels is not None and len(batch.images):
            x, y = batch.images.to(device), batch.labels.to(device)
            x = x if attack is None else attack(model, x, y, preprocess, part)
            with borrowed(model), torch.no_grad():
                right += int((logits_of(model(x)).argmax(1) == y).sum())
            total += len(y)
    if not total:
        raise InputError(f"None of the {len(images)} images to judge by can be read ({images.names[0]} and so on).")
    return right / total


def robust_accuracy(
    model: nn.Module, images: ImageSet, preprocess: Preprocess, attack: PGD | None = None, batch_size: int = 128
) -> float:
    """The accuracy under an attack [default: PGD with its default strength]."""
    return accuracy(model, images, preprocess, attack or PGD(), batch_size)


def logits_of(output: object) -> Tensor:
    """The logits in what a network returns: the one (N, classes) tensor, or the one called ``logits``."""
    found = logits_in(output)
    if len(found) != 1:
        raise InputError(
            f"The network returns {type(output).__name__}; training needs one (N, classes) tensor of logits."
        )
    return found[0]
