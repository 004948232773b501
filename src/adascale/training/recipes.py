"""Training recipes: the settings of each loss, and their reduction to a smaller budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from adascale.core.errors import InputError
from adascale.training.attack import PGD

Loss = Literal["cross-entropy", "ish", "adversarial"]


@dataclass(frozen=True)
class Recipe:
    """The settings of a training run: SGD with Nesterov momentum, and a learning rate that falls along a half cosine.

    head_weight_decay: that of the last linear layer. keep: percent of the features in ISH's weight gradient. eps,
    attack_steps: those of PGD in adversarial training. augment: random crops and mirrors. The defaults are OpenOOD's
    for CIFAR.
    """

    loss: Loss = "cross-entropy"
    epochs: int = 100
    lr: float = 0.1
    final_lr: float = 1e-6
    momentum: float = 0.9
    weight_decay: float = 5e-4
    head_weight_decay: float = 5e-4
    batch_size: int = 128
    keep: float = 15.0
    eps: float = 0.01
    attack_steps: int = 7
    augment: bool = True

    def __post_init__(self) -> None:
        if self.loss not in get_args(Loss):
            raise InputError(f"loss={self.loss!r}; choose one of {', '.join(get_args(Loss))}.")
        for name in ("epochs", "batch_size", "lr"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name}={getattr(self, name)}; it must be above 0.")
        for name in ("weight_decay", "head_weight_decay", "final_lr"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name}={getattr(self, name)}; it must not be negative.")
        if not 0 < self.momentum < 1:
            raise InputError(f"momentum={self.momentum}; it must lie between 0 and 1.")
        PGD(self.eps, self.attack_steps)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of one step out of ``steps``."""
        last = min(self.final_lr, self.lr)
        return last + (self.lr - last) * (1 + math.cos(math.pi * step / steps)) / 2


RECIPES: Mapping[str, Recipe] = {
    "cross-entropy": Recipe(),
    "ish": Recipe("ish", epochs=10, lr=0.003, head_weight_decay=5e-5),
    "adversarial": Recipe("adversarial"),
}

# Settings that belong to one loss
OWN: Mapping[str, Loss] = {"eps": "adversarial", "attack_steps": "adversarial", "keep": "ish"}


def budgeted(recipe: Recipe, share: float, scalable: bool) -> tuple[Recipe, float]:
    """The recipe and the width for about this share of the full cost, which grows with epochs and with width squared.

    If the width can be scaled, epochs are multiplied by sqrt(share) and the width by share^(1/4); otherwise epochs are
    multiplied by share.
    """
    if not 0 < share <= 1:
        raise InputError(f"budget {share}; it is a share of the cost of the full recipe, above 0 and at most 1.")
    width = share**0.25 if scalable else 1.0
    return replace(recipe, epochs=max(1, round(recipe.epochs * share / width**2))), width
