"""Preprocessing: from an image to the input of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adascale.core.errors import InputError
from adascale.images.decode import DRAFTED, eight_bit

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
_MOST_PIXELS = 50_000_000


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes a network's input: resize, centre crop, scale to [0, 1], normalise.

    size: length of the shorter side, or (height, width) to squash to. crop: side or (height, width), None for no crop.
    mean, std: one value per channel; a single value means greyscale input. draft: decode large JPEGs at a half, a
    quarter or an eighth of their size, never below twice ``size``, which is faster and changes pixels slightly.
    """

    size: int | tuple[int, int]
    crop: int | tuple[int, int] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: Interpolation = "bilinear"
    draft: bool = False

    def __post_init__(self) -> None:
        for name in ("size", "crop", "mean", "std"):  # lists come from JSON and TOML
            value = getattr(self, name)
            object.__setattr__(self, name, tuple(value) if isinstance(value, list) else value)
        if min(sides(self.size) + sides(self.crop)) < 1:
            raise InputError(f"size={self.size} and crop={self.crop}; every side must be at least 1.")
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise InputError(f"mean={self.mean} and std={self.std}; give both 3 values (RGB) or both 1 (greyscale).")
        if min(self.std) <= 0:
            raise InputError(f"std={self.std}; every value must be above 0.")
        if self.interpolation not in get_args(Interpolation):
            known = ", ".join(get_args(Interpolation))
            raise InputError(f"interpolation={self.interpolation!r}; choose one of {known}.")

    def __call__(self, image: Image.Image) -> Tensor:
        """The normalised tensor (C, H, W)."""
        image = eight_bit(image).convert("RGB" if len(self.mean) == 3 else "L")
        pixels = np.array(self._crop(self._resize(image)), dtype=np.uint8)
        tensor = torch.from_numpy(pixels if pixels.ndim == 3 else pixels[:, :, None])
        tensor = tensor.permute(2, 0, 1).contiguous().float().div_(255)
        shape = (-1, 1, 1)
        return tensor.sub_(torch.tensor(self.mean).view(shape)).div_(torch.tensor(self.std).view(shape))

    def _resize(self, image: Image.Image) -> Image.Image:
        (width, height), box = image.info.get(DRAFTED, (image.size, None))
        if isinstance(self.size, int):
            short, long = sorted((width, height))
            new_long = max(1, int(self.size * long / short))
            target = (self.size, new_long) if width <= height else (new_long, self.size)
        else:
            target = (self.size[1], self.size[0])
        if target[0] * target[1] > _MOST_PIXELS:
            raise ValueError(f"{width} x {height} would be resized to {target[0]} x {target[1]}: too long and thin")
        if target == image.size and box is None:
            return image
        return image.resize(target, Image.Resampling[self.interpolation.upper()], box=box)

    def _crop(self, image: Image.Image) -> Image.Image:
        if self.crop is None:
            return image
        height, width = (self.crop, self.crop) if isinstance(self.crop, int) else self.crop
        left, top = round((image.width - width) / 2), round((image.height - height) / 2)
        return image.crop((left, top, left + width, top + height))


def sides(value: int | tuple[int, int] | None) -> tuple[int, ...]:
    """The lengths that a ``size`` or ``crop`` gives."""
    return value if isinstance(value, tuple) else () if value is None else (value,)
