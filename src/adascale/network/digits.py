"""Real images that come with scikit-learn, split into ID and OOD, and a small network for them.

The network learns the digits 0 to 7. The digits 8 and 9, which it never saw, are near-OOD; patches of two photographs
are far-OOD.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet

PREPROCESS: dict[str, Any] = {"size": 16, "crop": 16, "mean": (0.3,), "std": (0.35,)}
KNOWN_DIGITS = 8
SEED = 0
_LABELLED = ("train", "fit", "test")


class DigitsCNN(nn.Module):
    """Two convolutions, a hidden layer of 512 features, 8 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.block1, self.block2 = _block(1, 32), _block(32, 64)
        self.hidden, self.norm = nn.Linear(64 * 4 * 4, 512), nn.BatchNorm1d(512)
        self.fc = nn.Linear(512, KNOWN_DIGITS)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.block1(x), 2)
        x = F.max_pool2d(self.block2(x), 2)
        logits: Tensor = self.fc(F.relu(self.norm(self.hidden(x.flatten(1)))))
        return logits


def _block(inputs: int, outputs: int) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


digits_cnn = DigitsCNN  # for ``--model .../digits.py:digits_cnn``


def load_digits() -> dict[str, ImageSet]:
    """1,797 digits of 8 x 8 pixels (UCI), and two photographs cut into 32 x 32 patches.

    ``train``, ``fit`` and ``test`` hold the digits 0 to 7 with their labels, ``near`` and ``far`` OOD images.
    """
    datasets = optional("sklearn.datasets", "demo")
    bunch = datasets.load_digits()
    pixels, labels = (bunch.images * 255 / 16).round().astype(np.uint8), bunch.target
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(SEED)).numpy()
    known, unknown = order[labels[order] < KNOWN_DIGITS], order[labels[order] >= KNOWN_DIGITS]
    parts = np.split(known, [len(known) * 3 // 5, len(known) * 4 // 5])
    photographs = [np.asarray(Image.fromarray(photo).convert("L")) for photo in datasets.load_sample_images().images]
    found = {name: (pixels[rows], labels[rows].tolist()) for name, rows in zip(_LABELLED, parts, strict=True)}
    found["near"] = pixels[unknown], None
    found["far"] = np.concatenate([_patches(photo, 32) for photo in photographs]), None
    return {
        part: ImageSet([f"digits:{part}[{i}]" for i in range(len(array))], array=array, labels=classes)
        for part, (array, classes) in found.items()
    }


def _patches(photo: Any, side: int) -> Any:
    rows, columns = (length // side for length in photo.shape)
    whole = photo[: rows * side, : columns * side]
    return whole.reshape(rows, side, columns, side).swapaxes(1, 2).reshape(-1, side, side)


def inputs(images: ImageSet) -> Tensor:
    """The images as the network takes them."""
    preprocess = Preprocess(**PREPROCESS)
    return torch.stack([preprocess(images.open(i)) for i in range(len(images))])


def train_network(images: ImageSet, epochs: int = 12, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A float32 network trained by cross-entropy with Adam; on one machine the weights are the same every time.

    dtype: that of the training. In float64 they are nearly the same with other numbers of threads and processors too.
    """
    x, y = inputs(images).to(dtype), torch.tensor(images.labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        network = DigitsCNN().to(dtype)
        optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(x)), 64):
                optimizer.zero_grad()
                torch.autograd.backward(F.cross_entropy(network(x[rows]), y[rows]))
                optimizer.step()
            schedule.step()
    return network.float().eval()


def digit_images(part: str) -> ImageSet:
    """One part of the digits: ``train``, ``fit``, ``test``, ``near`` or ``far``."""
    parts = load_digits()
    if part not in parts:
        raise InputError(f"The digits have no part {part!r}; choose one of {', '.join(parts)}.")
    return parts[part]
