"""ISH by hand: one gradient differs from the plain layer's, and by the definition."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adascale import InputError
from adascale.training.ish import ish, reshaped


def gradients(layer: nn.Linear, inputs: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    leaf = inputs.clone().requires_grad_()
    layer.zero_grad()
    output = layer(leaf)
    torch.autograd.backward((output * weights).sum())
    assert leaf.grad is not None
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    return output.detach(), leaf.grad, layer.bias.grad.clone(), layer.weight.grad.clone()


def test_by_hand() -> None:
    layer = nn.Linear(4, 2)
    a = torch.tensor([[1.0, 3.0, 0.0, 2.0], [4.0, 0.0, 1.0, 5.0]])
    g = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    plain = gradients(layer, a, g)
    with ish(layer, keep=50):  # two of four: 3 and 2 of a sum of 6; 4 and 5 of 10
        shaped = gradients(layer, a, g)
    for before, now in zip(plain[:3], shaped[:3], strict=True):
        assert torch.equal(before, now)
    first, second = math.exp(6 / 5), math.exp(10 / 9)
    copies = torch.tensor([[0, 3 * first, 0, 2 * first], [4 * second, 0, 0, 5 * second]])
    expected = torch.stack([copies[0] + 0.5 * copies[1], -2 * copies[0] + 3 * copies[1]])
    assert torch.allclose(shaped[3], expected)
    assert not torch.allclose(plain[3], expected)


def test_the_largest_count_by_absolute_value() -> None:
    a = torch.arange(1.0, 101)[None] * torch.where(torch.arange(100) % 7 == 0, -1.0, 1.0)
    kept = reshaped(a)
    assert (kept != 0).sum() == 15
    assert (kept != 0).nonzero()[:, 1].tolist() == list(range(85, 100))
    assert torch.allclose(kept[0, 99], 100 * (a.sum() / a[0, 85:].sum()).exp())
    assert (reshaped(torch.ones(1, 3)) != 0).sum() == 1
    assert torch.equal(reshaped(torch.zeros(2, 8)), torch.zeros(2, 8))


def test_the_layer_is_left_as_it_was() -> None:
    layer = nn.Linear(4, 2, bias=False)
    x = torch.randn(3, 4)
    with ish(layer):
        inside = layer(x)
        torch.autograd.backward(F.cross_entropy(inside, torch.tensor([0, 1, 0])))
    assert "forward" not in vars(layer)
    assert torch.equal(inside, layer(x))


def test_refusals() -> None:
    with pytest.raises(InputError, match="ends in Conv2d"), ish(nn.Conv2d(3, 2, 1)):
        pass
    with pytest.raises(InputError, match="keep=0"), ish(nn.Linear(2, 2), keep=0):
        pass
