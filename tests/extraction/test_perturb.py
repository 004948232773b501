"""Which pixels move, which way, how far."""

from __future__ import annotations

import pytest
import torch

from adascale import InputError, View
from adascale.extraction.perturb import perturb, random_signs, selected
from tests.conftest import images


def test_trivial_takes_the_lowest_and_salient_the_highest() -> None:
    gradient = torch.tensor([3.0, -0.1, 0.2, -5.0, 1.0, 0.0, 2.0, -0.3]).view(1, 1, 2, 4)
    x = torch.zeros_like(gradient)
    trivial = perturb(x, gradient, View("trivial", 0.5, 0.5)).flatten().tolist()
    salient = perturb(x, gradient, View("salient", 0.25, 0.5)).flatten().tolist()
    assert trivial == [0, -0.5, 0.5, 0, 0, 0, 0, -0.5]  # the zero gradient is chosen, and does not move
    assert salient == [0.5, 0, 0, -0.5, 0, 0, 0, 0]


def test_all_moves_everything_by_the_sign() -> None:
    gradient = images(2)
    assert torch.equal(perturb(images(2), gradient, View("all", step=2.0)), images(2) + 2 * gradient.sign())


@pytest.mark.parametrize("pixels", ["trivial", "salient"])
def test_ties_are_cut_at_the_exact_count_with_lower_indices_first(pixels: str) -> None:
    gradient = torch.ones(2, 1, 4, 4)
    chosen = selected(gradient, View(pixels, 0.25))  # type: ignore[arg-type]
    assert chosen.flatten(1).tolist() == [[True] * 4 + [False] * 12] * 2


def test_random_is_one_draw_for_all_images_and_needs_no_gradient() -> None:
    x = images(4)
    view = View("random", 0.05, 0.5, seed=3)
    delta = perturb(x, None, view) - x
    assert torch.allclose(delta, delta[:1].expand_as(delta), atol=1e-6)
    moved = random_signs((3, 16, 16), 0.05, 3)
    assert int((moved != 0).sum()) == 38  # floor(768 * 0.05)
    assert set(moved.flatten().tolist()) == {-1.0, 0.0, 1.0}
    assert not torch.equal(moved, random_signs((3, 16, 16), 0.05, 4))


def test_a_larger_random_share_contains_the_smaller() -> None:
    small, large = (random_signs((3, 8, 8), share, 0) for share in (0.05, 0.5))
    assert torch.equal(large[small != 0], small[small != 0])


def test_the_largest_value_alone() -> None:
    gradient = torch.tensor([0.5, -3.0, 3.0, 0.0]).view(1, 1, 2, 2)
    moved = perturb(torch.zeros(1, 1, 2, 2), gradient, View("largest", step=-0.25, temperature=1000.0))
    assert moved.flatten().tolist() == [0, 0.25, 0, 0]  # of equal sizes the lower index


def test_views_that_do_the_same_are_equal() -> None:
    assert View("all", 0.05) == View("all", 0.5)
    assert View("largest", 0.05) == View("largest", 0.5) != View("salient")
    assert View("trivial", seed=1) == View("trivial", seed=2)
    assert View("random", seed=1) != View("random", seed=2)
    assert len({View(), View(), View(step=1.0)}) == 2


def test_bad_views_are_refused() -> None:
    with pytest.raises(InputError, match="trivial, random, salient, largest, all"):
        View("pretty")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="above 0 and at most 1"):
        View(fraction=5)
    with pytest.raises(InputError, match="less than one"):
        perturb(torch.zeros(1, 1, 2, 2), None, View("random"))
    with pytest.raises(InputError, match="pixels='random'"):
        perturb(images(1), None, View())
