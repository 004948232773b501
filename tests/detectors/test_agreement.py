"""Scores against those of pytorch-ood, where it is installed: the same order, or a sentence about who deviates."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import nn

from adascale import AdascaleError, Outputs
from adascale.testing import example_outputs
from benchmarks import agreement, field
from benchmarks.agreement_inside import INSIDE, Staged, scores
from tests.conftest import StagedNet, seeded


@lru_cache
def installed() -> Any:
    try:
        return agreement.package()
    except (AdascaleError, RuntimeError) as error:
        pytest.skip(f"pytorch-ood is not installed: {error}")


@lru_cache
def given() -> Any:
    installed()
    train, head = example_outputs(600, ())
    parts = [example_outputs(150, (), ood=ood, seed=3)[0] for ood in (False, True)]
    test = Outputs.cat([Outputs(part.logits, part.features) for part in parts])
    return agreement.given(train, test, head), head


@pytest.mark.parametrize("name", agreement.PAIRS)
def test_the_same_order(name: str) -> None:
    both, head = given()
    found = agreement.correlation(name, both, head)
    if not agreement.PAIRS[name].deviates:
        assert found >= agreement.AGREED


def staged() -> tuple[Staged, tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A network in the parts that pytorch-ood takes, training images with its answers, and images to score."""
    net: Any = seeded(StagedNet).eval()
    generator = torch.Generator().manual_seed(1)
    images, test = torch.randn(400, 3, 32, 32, generator=generator), torch.randn(80, 3, 32, 32, generator=generator)
    test[40:] *= 2
    with torch.no_grad():
        net.fc.bias -= net(images).mean(0)  # every class is predicted now and then
        labels = net(images).argmax(1)
    parts = [nn.Sequential(net.stem, net.pool, net.layer1), net.layer2, net.layer3]
    rest = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), net.drop, net.fc)
    return Staged(net, parts, rest, ("layer1", "layer2", "layer3")), (images, labels), test


def _convolutions() -> nn.Module:
    maps = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 12, 3, 2, 1), nn.Tanh())
    return nn.Sequential(maps, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))


@pytest.mark.parametrize("std", [(), (0.2, 0.25, 0.3)])
def test_the_same_order_of_images_moved_towards_their_class(std: tuple[float, ...]) -> None:
    """Features of the usual size: they add 1e-6 to the summed covariance, which must not count."""
    installed()
    model: Any = seeded(_convolutions)
    _, (images, _), test = staged()
    net, labels = Staged(model, [model[0]], model[1:], ("0",)), torch.arange(len(images)) % 5
    images += 0.5 * labels[:, None, None, None]
    assert agreement.mds_odin(net, (images, labels), test, std) >= agreement.AGREED


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.filterwarnings("ignore:var")
def test_the_same_order_inside_a_network(name: str) -> None:
    net, train, test = staged()
    ours, theirs = scores(name, installed(), net, train, test)
    assert ours.shape == theirs.shape == (80,)
    if not INSIDE[name].deviates:
        assert agreement.rank_correlation(ours, theirs) >= agreement.AGREED


def test_every_method_that_both_have_is_compared() -> None:
    assert {*agreement.PAIRS, *INSIDE, "odin", "mds_odin"} == {*field.ours_by_name(field.PYTORCH_OOD)}
    assert {pair.theirs for pair in agreement.PAIRS.values()} <= {*field.PYTORCH_OOD}


def test_the_list_of_their_methods_is_that_of_the_package() -> None:
    package = installed()
    theirs = {name for name in package.__all__ if inspect.isclass(getattr(package, name))}
    assert theirs == {*field.PYTORCH_OOD}
