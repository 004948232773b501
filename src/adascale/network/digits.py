"""Real images that come with scikit-learn, split into ID and OOD, and a small network for them.

The network learns the digits 0 to 7. The digits 8 and 9, which it never saw, are near-OOD; patches of two photographs
are far-OOD.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

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


class DigitsCNN(nn.Module):
    """Two convolutions, a hidden layer of 512 features, 8 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.block1, self.block2 = _block(1, 32), _block(32, 64)
        self.hidden = nn.Linear(64 * 4 * 4, 512)
        self.norm = nn.BatchNorm1d(512)
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


class Digits(NamedTuple):
    """uint8 images: labelled ones to train the network on, to fit on and to test on, and near- and far-OOD ones."""

    train: tuple[list[Image.Image], Tensor]
    fit: tuple[list[Image.Image], Tensor]
    test: tuple[list[Image.Image], Tensor]
    near: list[Image.Image]
    far: list[Image.Image]


def load_digits() -> Digits:
    """1,797 digits of 8 x 8 pixels (UCI), and two photographs cut into 32 x 32 patches; all are resized to 16 x 16."""
    datasets = optional("sklearn.datasets", "demo")
    bunch = datasets.load_digits()
    images = [Image.fromarray((digit * 255 / 16).round().astype(np.uint8)) for digit in bunch.images]
    labels = torch.from_numpy(bunch.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED)).tolist()
    known = [i for i in order if labels[i] < KNOWN_DIGITS]
    cuts = (0, len(known) * 3 // 5, len(known) * 4 // 5, len(known))
    parts = (known[a:b] for a, b in pairwise(cuts))
    train, fit, test = (([images[i] for i in part], labels[part]) for part in parts)
    near = [images[i] for i in order if labels[i] >= KNOWN_DIGITS]
    photographs = [Image.fromarray(photo).convert("L") for photo in datasets.load_sample_images().images]
    far = [patch for photo in photographs for patch in _patches(photo, 32)]
    return Digits(train, fit, test, near, far)


def train_network(images: Tensor, labels: Tensor, epochs: int = 12) -> nn.Module:
    """A network trained by cross-entropy with Adam; on one machine the weights are the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        network = DigitsCNN()
        optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(images)), 64):
                optimizer.zero_grad()
                torch.autograd.backward(F.cross_entropy(network(images[rows]), labels[rows]))
                optimizer.step()
            schedule.step()
    return network.eval()


def trained() -> nn.Module:
    """The network, trained when this is called (some seconds)."""
    images, labels = load_digits().train
    return train_network(torch.stack(list(map(Preprocess(**PREPROCESS), images))), labels)


def digit_images(part: str) -> ImageSet:
    """One part as a set of images: ``train``, ``fit``, ``test`` with labels, ``near``, ``far``."""
    if part not in Digits._fields:
        raise InputError(f"The digits have no part {part!r}; choose one of {', '.join(Digits._fields)}.")
    found: Any = getattr(load_digits(), part)
    images, labels = found if isinstance(found, tuple) else (found, None)
    names = [f"digits:{part}[{i}]" for i in range(len(images))]
    array = np.stack([np.asarray(image) for image in images])
    return ImageSet(names, array=array, labels=None if labels is None else labels.tolist())


def _patches(photo: Image.Image, side: int) -> list[Image.Image]:
    corners = [(x, y) for y in range(0, photo.height - side + 1, side) for x in range(0, photo.width - side + 1, side)]
    return [photo.crop((x, y, x + side, y + side)) for x, y in corners]
