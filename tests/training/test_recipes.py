"""The recipes of the papers, and smaller budgets."""

from __future__ import annotations

import pytest

from adascale.training.recipes import RECIPES, Recipe, budgeted


def test_recipes_of_the_papers() -> None:
    assert (RECIPES["cross-entropy"].epochs, RECIPES["cross-entropy"].lr) == (100, 0.1)
    ish = RECIPES["ish"]
    assert (ish.epochs, ish.lr, ish.weight_decay, ish.head_weight_decay, ish.keep) == (10, 0.003, 5e-4, 5e-5, 15)
    assert ish.rate(0, 100) == 0.003
    assert ish.rate(100, 100) == pytest.approx(1e-6)
    assert ish.rate(50, 100) == pytest.approx((0.003 + 1e-6) / 2)


def test_a_budget_scales_epochs_and_width() -> None:
    recipe, width = budgeted(Recipe(), 0.01, scalable=True)
    assert recipe.epochs == 10
    assert recipe.epochs / 100 * width**2 == pytest.approx(0.01)
    assert budgeted(Recipe(), 0.01, scalable=False) == (Recipe(epochs=1), 1.0)
    assert budgeted(Recipe(), 1, scalable=True) == (Recipe(), 1.0)
