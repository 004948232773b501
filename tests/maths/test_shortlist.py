"""The bounds on float32 products hold, and what they leave open holds the answer."""

from __future__ import annotations

import pytest
import torch

from adascale.maths.shortlist import fits_float32, kth_largest_open, pair_products, product_error


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("size", [1, 50, 3000])
@pytest.mark.parametrize("spread", [1, 1e4])
def test_no_product_is_further_off_than_the_bound(size: int, spread: float) -> None:
    left, right = drawn(40, size), drawn(60, size, seed=1)
    left[:, 0] *= spread
    rough = (left.float() @ right.float().T).double()
    assert ((rough - left @ right.T).abs() <= product_error(size) * (left.abs() @ right.abs().T)).all()


def test_the_bound_of_a_sum_that_only_loses() -> None:
    """Each step from 2^24 on loses a whole 1: about the worst that float32 can do, one after the other."""
    size = 1000
    total = torch.tensor(2.0**24)
    for _ in range(size - 1):
        total = total + 1.0
    exact = 2.0**24 + size - 1
    assert exact - float(total) > 900
    assert exact - float(total) <= product_error(size) * exact


def test_vectors_too_long_for_float32() -> None:
    assert product_error(2**24) == float("inf")


def test_lengths_that_fit() -> None:
    assert fits_float32(torch.tensor([0.0, 1e-10, 1e10]))
    assert not fits_float32(torch.tensor([1.0, 1e20]))
    assert not fits_float32(torch.tensor([1.0, 1e-20]))


def test_products_of_pairs_in_pieces() -> None:
    left, right = drawn(30, 7), drawn(20, 7, seed=1)
    rows, columns = torch.arange(2500) % 30, torch.arange(2500) * 7 % 20
    assert torch.allclose(pair_products(left, right, rows, columns), (left @ right.T)[rows, columns], rtol=1e-12)
    none = torch.empty(0, dtype=torch.int64)
    assert pair_products(left, right, none, none).shape == (0,)


@pytest.mark.parametrize("k", [1, 5, 40])
def test_the_kth_value_is_among_the_open_ones(k: int) -> None:
    true, error = drawn(200, 40), 0.05
    noise = error * (2 * torch.rand(200, 40, generator=torch.Generator().manual_seed(2), dtype=torch.float64) - 1)
    rough, order = (true + noise).sort(1, descending=True)
    true = true.gather(1, order)
    above, open_ = kth_largest_open(rough, k, error)
    expected = true.sort(1, descending=True).values[:, k - 1 : k]
    assert (true[above] > expected.expand_as(true)[above]).all()
    assert ((true == expected) & open_).any(1).all()
    rank = above.sum(1)
    for i in range(200):
        assert true[i][open_[i]].sort(descending=True).values[k - 1 - rank[i]] == expected[i]
