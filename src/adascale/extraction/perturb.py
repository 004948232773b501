"""Perturbed images: which pixels change, in which direction and by how much (AdaSCALE, steps 2 and 3)."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import View
from adascale.maths.activations import first_ties, share_count


def perturb(images: Tensor, gradient: Tensor | None, view: View) -> Tensor:
    """``x + step * sign(g) / std`` on the pixels that the view selects, ``x`` elsewhere."""
    if not view.needs_gradient:
        signs = random_signs(tuple(images.shape[1:]), view.fraction, view.seed).to(images)
    elif gradient is None:
        raise InputError(f"The view {view} needs the input gradient; pass it, or use pixels='random'.")
    elif view.temperature is not None:
        signs = torch.where(selected(gradient, view), torch.where(gradient >= 0, 1.0, -1.0), 0).to(images)
    else:
        signs = torch.where(selected(gradient, view), gradient.sign(), 0)
    return images + view.step * signs / _channel_std(images, view)


def _channel_std(images: Tensor, view: View) -> Tensor | float:
    if not view.std:
        return 1.0
    if len(view.std) not in (1, images.shape[1]):
        raise InputError(f"std={view.std} for images with {images.shape[1]} channels; give one value for each.")
    return images.new_tensor(view.std).view(-1, 1, 1)


def selected(gradient: Tensor, view: View) -> Tensor:
    """The mask of the ``floor(C*H*W*o)`` values per image with the lowest (trivial) or highest (salient) ``|g|``.

    Among equal values the lower index is taken first, so the choice never depends on the batch or the run.
    """
    if view.pixels == "all":
        return torch.ones_like(gradient, dtype=torch.bool)
    size = gradient.abs().flatten(1)
    if view.pixels == "salient":
        size = -size
    count = pixel_count(size.shape[1], view.fraction)
    last = size.kthvalue(count, dim=1, keepdim=True).values
    chosen: Tensor = first_ties(size < last, size == last, count)
    return chosen.view_as(gradient)


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
