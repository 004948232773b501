"""PGD stays where it may, raises the loss, repeats itself and leaves the network alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adascale import InputError, Preprocess
from adascale.images.sources import ImageSet
from adascale.training.attack import PGD, accuracy, robust_accuracy
from tests.conftest import SmallNet, seeded

PREPROCESS = Preprocess(16, 16, (0.5, 0.4, 0.3), (0.2, 0.25, 0.5))


def pixels(n: int = 8) -> ImageSet:
    array = np.random.default_rng(0).integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)
    array[0], array[1] = 0, 255
    return ImageSet([str(i) for i in range(n)], array=array, labels=[i % 5 for i in range(n)])


def batch(images: ImageSet) -> tuple[Tensor, Tensor]:
    return torch.stack([PREPROCESS(images.open(i)) for i in range(len(images))]), torch.tensor(images.labels)


def unit(x: Tensor) -> Tensor:
    shape = (-1, 1, 1)
    return x * torch.tensor(PREPROCESS.std).view(shape) + torch.tensor(PREPROCESS.mean).view(shape)


@pytest.mark.parametrize("eps", [0.01, 0.05])
def test_in_the_ball_in_range_and_worse(net: nn.Module, eps: float) -> None:
    x, y = batch(pixels())
    found = PGD(eps)(net, x, y, PREPROCESS)
    assert (unit(found) - unit(x)).abs().max() <= eps + 1e-6
    assert unit(found).min() >= -1e-6
    assert unit(found).max() <= 1 + 1e-6
    with torch.no_grad():
        before, after = (F.cross_entropy(net(z), y, reduction="none") for z in (x, found))
    assert (after >= before).all()
    assert after.mean() > before.mean()


def test_deterministic_by_seed_and_part(net: nn.Module) -> None:
    x, y = batch(pixels())
    attack = PGD(0.03, steps=1)
    assert torch.equal(attack(net, x, y, PREPROCESS), attack(net, x, y, PREPROCESS))
    assert not torch.equal(attack(net, x, y, PREPROCESS), attack(net, x, y, PREPROCESS, part=1))
    assert not torch.equal(attack(net, x, y, PREPROCESS), PGD(0.03, 1, seed=1)(net, x, y, PREPROCESS))


def test_the_network_is_left_as_it_was() -> None:
    net = seeded(SmallNet).train()
    net.get_submodule("norm").eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x, y = batch(pixels())
    PGD()(net, x, y, PREPROCESS)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert [module.training for module in net.modules()] == [True, True, False, True]
    assert all(p.grad is None for p in net.parameters())


def test_accuracies(net: nn.Module) -> None:
    images = pixels(40)
    x, _ = batch(images)
    with torch.no_grad():
        own = net(x).argmax(1).tolist()
    known = ImageSet(images.names, array=images.array, labels=own)
    assert accuracy(net, known, PREPROCESS, batch_size=16) == 1
    assert robust_accuracy(net, known, PREPROCESS, PGD(0.5), batch_size=16) < 0.5


def test_refusals(net: nn.Module) -> None:
    with pytest.raises(InputError, match="eps=0"):
        PGD(0)
    with pytest.raises(InputError, match="steps=0"):
        PGD(0.1, 0)
    with pytest.raises(InputError, match="classes"):
        accuracy(net, ImageSet(["a"], array=np.zeros((1, 16, 16, 3), np.uint8)), PREPROCESS)
