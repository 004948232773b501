"""Preprocessing: from an opened image to the input of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adascale.core.errors import InputError

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
_MOST_PIXELS = 50_000_000
_DRAFTED = "adascale: size and box before draft"


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
        pixels = np.array(self._crop(self._resize(self.coloured(image))), dtype=np.uint8)
        tensor = torch.from_numpy(pixels if pixels.ndim == 3 else pixels[:, :, None])
        tensor = tensor.permute(2, 0, 1).contiguous().float().div_(255)
        shape = (-1, 1, 1)
        return tensor.sub_(torch.tensor(self.mean).view(shape)).div_(torch.tensor(self.std).view(shape))

    def coloured(self, image: Image.Image) -> Image.Image:
        """The image in the channels of the network, RGB or greyscale."""
        return eight_bit(image).convert("RGB" if len(self.mean) == 3 else "L")

    @property
    def filter(self) -> Image.Resampling:
        return Image.Resampling[self.interpolation.upper()]

    @property
    def side(self) -> tuple[int, int]:
        """The height and width of the network's input; where nothing is cropped, the shorter side stands for both."""
        side = self.size if self.crop is None else self.crop
        return (side, side) if isinstance(side, int) else side

    def _resize(self, image: Image.Image) -> Image.Image:
        (width, height), box = image.info.get(_DRAFTED, (image.size, None))
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
        return image.resize(target, self.filter, box=box)

    def _crop(self, image: Image.Image) -> Image.Image:
        if self.crop is None:
            return image
        height, width = self.side
        left, top = round((image.width - width) / 2), round((image.height - height) / 2)
        return image.crop((left, top, left + width, top + height))


def sides(value: int | tuple[int, int] | None) -> tuple[int, ...]:
    """The lengths that a ``size`` or ``crop`` gives."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


def eight_bit(image: Image.Image) -> Image.Image:
    """The image with 8 bits a channel; deeper ones are scaled, where Pillow would clip them at 255."""
    if image.mode == "F":
        raise ValueError("a floating point image has no defined white; convert it to 8 or 16 bit")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA")
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.float64)
    scale = 1 if values.max(initial=0) <= 255 and image.mode == "I" else 257
    return Image.fromarray((values / scale).round().clip(0, 255).astype(np.uint8))


def draft(image: Image.Image, least: int) -> None:
    """Ask the decoder for a smaller image with sides of at least ``least``; only the JPEG decoder complies.

    The image then carries its full size, and the box of the result that holds the picture if the size is not divisible.
    """
    size = image.size
    answer = image.draft(None, (least, least))
    if answer is not None and image.size != size:
        image.info[_DRAFTED] = (size, answer[1])
