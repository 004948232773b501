"""What taps make of inner layers: a few numbers for each image (see `Tap`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from adascale.core.taps import Tap

_TINY = 1e-30


def as_maps(value: Tensor) -> Tensor:
    """Channels and positions (N, C, S) of a layer: of maps (N, C, H, W), also (N, H, W, C) where height and width are
    equal and the last is not, of tokens (N, T, C), and of vectors (N, C).
    """
    if value.ndim == 4:
        value = value.permute(0, 3, 1, 2) if channels_last(value.shape) else value
        return value.flatten(2)
    return value.transpose(1, 2) if value.ndim == 3 else value.flatten(1)[:, :, None]


def channels_last(shape: Sequence[int]) -> bool:
    """Whether maps of this shape are (N, H, W, C), as in Swin transformers; (N, C, H, W) where both can be."""
    return shape[1] == shape[2] != shape[3]


def reduced(value: Tensor, tap: Tap, gradient: Tensor | None = None) -> Tensor:
    """What the tap makes of a layer (N, K), in float32 at least. gradient: of the tap's objective, if it has one."""
    maps = as_maps(_precise(value))
    if gradient is None:
        return _OF_VALUES[tap.reduce](maps, tap)
    return _OF_GRADIENTS[tap.reduce](maps, as_maps(_precise(gradient)))


def finite_maps(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Maps (N, C, S) with zeros in the place of images that are not finite, which decompositions refuse, and which
    images are finite (N, 1, 1).
    """
    finite = maps.isfinite().flatten(1).all(1)[:, None, None]
    return torch.where(finite, maps, 0.0), finite


def _precise(value: Tensor) -> Tensor:
    return value.to(torch.promote_types(value.dtype, torch.float32))


def _mean(maps: Tensor, _: Tap) -> Tensor:
    return maps.mean(2)


def _minmax(maps: Tensor, _: Tap) -> Tensor:
    low, high = maps.flatten(1).aminmax(dim=1)
    return torch.stack([-low, high], 1)


def _gram(maps: Tensor, tap: Tap) -> Tensor:
    """The row sums, ``sum_j (x^p x^p^T)_ij = x_i^p . sum_j x_j^p``, without the matrix.

    The largest magnitude of an image is divided out first: powers would overflow.
    """
    scale = maps.abs().amax((1, 2)).clamp_min(_TINY)
    unit = maps / scale[:, None, None]
    power, exponent, found = unit, 1, {}
    for p in sorted(set(tap.powers)):
        while exponent < p:
            power, exponent = power * unit, exponent + 1
        rows = torch.bmm(power, power.sum(1)[:, :, None]).squeeze(2)
        found[p] = rows.sign() * rows.abs() ** (1 / p) * scale[:, None] ** 2
    return torch.cat([found[p] for p in tap.powers], 1)


def _principal(maps: Tensor, tap: Tap) -> Tensor:
    """Roots of the largest eigenvalues of the covariance of the positions, or of their inner products if those are
    fewer: both have the same.
    """
    x, finite = finite_maps(maps.double())
    x = x - x.mean(2, keepdim=True)
    square = x @ x.transpose(1, 2) if x.shape[1] < x.shape[2] else x.transpose(1, 2) @ x
    values = torch.linalg.eigvalsh(square / x.shape[2]).clamp_min(0).sqrt().flip(1)[:, : tap.count]
    padded = nn.functional.pad(values, (0, tap.count - values.shape[1]))
    return torch.where(finite[:, :, 0], padded, torch.nan).to(maps)


def _attribution(maps: Tensor, gradient: Tensor) -> Tensor:
    return maps.mean(2) * gradient.sum(2)


def _share(_: Tensor, gradient: Tensor) -> Tensor:
    return _squares((gradient != 0).to(gradient.dtype).mean(2))


def _gradient_mean(_: Tensor, gradient: Tensor) -> Tensor:
    return _squares(gradient.mean(2))


def _squares(values: Tensor) -> Tensor:
    """The sum of squares of each row, and how many there are (N, 2)."""
    return torch.stack([values.square().sum(1), values.new_full((len(values),), values.shape[1])], 1)


_OF_VALUES = {"mean": _mean, "gram": _gram, "minmax": _minmax, "principal": _principal}
_OF_GRADIENTS = {"attribution": _attribution, "gradient_share": _share, "gradient_mean": _gradient_mean}
