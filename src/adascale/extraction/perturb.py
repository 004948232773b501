"""Perturbed images: which pixels change, in which direction and by how much (AdaSCALE, steps 2 and 3)."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import View
from adascale.maths.activations import first_ties, share_count


def perturb(images: Tensor, gradient: Tensor | None, view: View) -> Tensor:
    """``x + step * sign(g) / std`` on the pixels that the view selects, ``x`` elsewhere."""
    if not view.needs_gradient:
        return moved(images, random_signs(tuple(images.shape[1:]), view.fraction, view.seed).to(images), view)
    if gradient is None:
        raise InputError(f"The view {view} needs the input gradient; pass it, or use pixels='random'.")
    return moved(images, signs_of(gradient, view).to(images), view)


def moved(images: Tensor, signs: Tensor, view: View) -> Tensor:
    """``x + step * signs / std``."""
    return images + view.step * signs / _channel_std(images, view)


def moved_anyway(shape: tuple[int, ...], view: View) -> Tensor | None:
    """The mask (C, H, W) of the values that the view moves in every image of this shape; None if that depends on it."""
    return None if view.needs_gradient else random_signs(shape, view.fraction, view.seed) != 0


def signs_of(gradient: Tensor, view: View) -> Tensor:
    """The sign of the gradient on the pixels that the view selects, 0 elsewhere; with a temperature ``sign(0) = 1``."""
    chosen = selected(gradient, view)
    if view.temperature is not None:
        return torch.where(chosen, torch.where(gradient >= 0, 1.0, -1.0), 0)
    return torch.where(chosen & ~gradient.isnan(), gradient.sign(), 0)  # other engines say sign(NaN) = NaN


def _channel_std(images: Tensor, view: View) -> Tensor | float:
    if not view.std:
        return 1.0
    if len(view.std) not in (1, images.shape[1]):
        raise InputError(f"std={view.std} for images with {images.shape[1]} channels; give one value for each.")
    return images.new_tensor(view.std).view(-1, 1, 1)


def selected(gradient: Tensor, view: View) -> Tensor:
    """The mask of the ``floor(C*H*W*o)`` values per image with the lowest (trivial) or highest (salient) ``|g|``; the
    one with the highest (largest).

    Among equal values the lower index is taken first, so the choice never depends on the batch or the run.
    """
    if view.pixels == "all":
        return torch.ones_like(gradient, dtype=torch.bool)
    size = gradient.abs().flatten(1)
    if view.pixels in ("salient", "largest"):
        size = -size
    count = 1 if view.pixels == "largest" else pixel_count(size.shape[1], view.fraction)
    # Exporters know no kthvalue; outside of them it is the faster one, for a single small image three times.
    last = _largest_of_lowest(size, count) if torch.compiler.is_compiling() else size.kthvalue(count, 1, True).values
    chosen: Tensor = first_ties(size < last, size == last, count)
    return chosen.view_as(gradient)


def _largest_of_lowest(size: Tensor, count: int) -> Tensor:
    """`Tensor.kthvalue` by a top-k. NaN counts as the largest value; it is kept from engines that cannot sort it."""
    missing = size.isnan()
    lowest = torch.where(missing, math.inf, size).topk(count, dim=1, largest=False, sorted=False).values
    enough = (~missing).sum(1, keepdim=True) >= count
    return torch.where(enough, lowest.amax(1, keepdim=True), math.nan)


@lru_cache(maxsize=16)
def random_signs(shape: tuple[int, ...], fraction: float, seed: int) -> Tensor:
    """+1 or -1 on a random share of the positions, 0 elsewhere: the same for every image of this shape."""
    generator = torch.Generator().manual_seed(seed)
    total = torch.Size(shape).numel()
    # All positions are drawn, whatever the share, so that a larger share contains the smaller one.
    positions = torch.randperm(total, generator=generator)[: pixel_count(total, fraction)]
    coins = torch.randint(0, 2, (total,), generator=generator) * 2.0 - 1.0
    signs = torch.zeros(total)
    signs[positions] = coins[positions]
    return signs.view(shape)


def pixel_count(total: int, fraction: float) -> int:
    count = share_count(total, fraction)
    if count < 1:
        raise InputError(
            f"fraction={fraction:g} of {total} channel values is less than one; "
            f"for inputs this small use a fraction of at least {1 / total:.2g}."
        )
    return count
