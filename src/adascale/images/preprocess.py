"""Preprocessing: from an opened image to the input of a network."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adascale.core.errors import AdascaleWarning, InputError
from adascale.images.limits import MAX_PIXELS
from adascale.images.pixels import (
    READ_ERRORS,
    Item,
    eight_bit,
    name_of,
    opened,
    shallow_hint,
    undrafted,
    why_unreadable,
)

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
_MOST_RESIZED = 2**24  # pixels: every decoding thread may hold as many


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes a network's input: resize, centre crop, scale to [0, 1], normalise.

    size: length of the shorter side, or (height, width) to squash to. crop: side or (height, width), None for no crop.
    mean, std: one value per channel; a single value means greyscale input. draft: decode large JPEGs at a half, a
    quarter or an eighth of their size, never below twice ``size``, which is faster and changes pixels slightly.

    The orientation in EXIF data is not applied: torchvision and timm do not apply it either when they train.

    For example:

        >>> preprocess = Preprocess(size=20, crop=16, mean=(0.5,), std=(0.25,))
        >>> preprocess("photo.jpg").shape
        torch.Size([1, 16, 16])
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

    def __call__(self, image: Item | str, max_pixels: int = MAX_PIXELS) -> Tensor:
        """The normalised tensor (C, H, W) of one image: a path, bytes, a Pillow image or a uint8 array (H, W, C).

        An image that cannot be read, or a file or bytes with more than ``max_pixels`` pixels, is an `InputError` that
        names it.
        """
        if not isinstance(image, str | os.PathLike | bytes | bytearray | memoryview | Image.Image | np.ndarray):
            given = type(image).__name__
            raise InputError(f"An image came as {given}; give a path, bytes, a Pillow image or a uint8 array.")
        name = name_of(image)
        try:
            with opened(image, self.least, max_pixels) as found:
                tensor, hint = self.normalised(found), shallow_hint(found, name)
        except InputError:
            raise
        except READ_ERRORS as error:
            raise unreadable(name, why_unreadable(error)) from error
        if hint:
            warnings.warn(hint, AdascaleWarning, stacklevel=2)
        return tensor

    def normalised(self, image: Image.Image) -> Tensor:
        """The same for an image that is open; what Pillow raises is not translated."""
        pixels = np.asarray(self._crop(self._resize(self.coloured(image))), dtype=np.uint8)
        pixels = pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels[None]
        # NumPy, because threads that decode would each get a pool of PyTorch's (see `in_passing_thread`).
        values = np.divide(pixels, 255, dtype=np.float32, order="C")
        values -= np.asarray(self.mean, np.float32)[:, None, None]
        values /= np.asarray(self.std, np.float32)[:, None, None]
        return torch.from_numpy(values)

    def coloured(self, image: Image.Image) -> Image.Image:
        """The image in the channels of the network, RGB or greyscale."""
        image, mode = eight_bit(image), "RGB" if len(self.mean) == 3 else "L"
        return image if image.mode == mode else image.convert(mode)  # convert would copy it

    @property
    def least(self) -> int | None:
        """The shortest side that a decoder may reduce an image to; None if it must not."""
        return 2 * max(sides(self.size)) if self.draft else None

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest value that a normalised pixel can have."""
        ends = [((0 - m) / s, (1 - m) / s) for m, s in zip(self.mean, self.std, strict=True)]
        return min(low for low, _ in ends), max(high for _, high in ends)

    @property
    def filter(self) -> Image.Resampling:
        """The interpolation as Pillow knows it."""
        return Image.Resampling[self.interpolation.upper()]

    @property
    def side(self) -> tuple[int, int]:
        """The height and width of the network's input; where nothing is cropped, the shorter side stands for both."""
        side = self.size if self.crop is None else self.crop
        return (side, side) if isinstance(side, int) else side

    def _resize(self, image: Image.Image) -> Image.Image:
        (width, height), box = undrafted(image)
        if isinstance(self.size, int):
            short, long = sorted((width, height))
            new_long = max(1, int(self.size * long / short))
            target = (self.size, new_long) if width <= height else (new_long, self.size)
        else:
            target = (self.size[1], self.size[0])
        if target[0] * target[1] > _MOST_RESIZED:
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


def as_preprocess(given: Preprocess | Mapping[str, Any] | None) -> Preprocess | None:
    """What the user gives as ``preprocess=``: a `Preprocess`, or a mapping of its fields."""
    if given is None or isinstance(given, Preprocess):
        return given
    rule = "give Preprocess(size=, crop=, mean=, std=), or a dict of these"
    if not isinstance(given, Mapping):
        kind = "a function" if callable(given) else type(given).__name__
        hint = " (what it returns can be given to the detector as tensors)" if callable(given) else ""
        raise InputError(f"preprocess came as {kind}; {rule}{hint}.")
    known, needed = [field.name for field in fields(Preprocess)], ("size", "crop", "mean", "std")
    wrong = [f"does not know {name!r}" for name in given if name not in known]
    wrong += [f"lacks {name!r}" for name in needed if name not in given]
    if wrong:
        raise InputError(f"preprocess={dict(given)} {' and '.join(wrong)}; {rule}.")
    return Preprocess(**given)


def sides(value: int | tuple[int, int] | None) -> tuple[int, ...]:
    """The lengths that a ``size`` or ``crop`` gives."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


def unreadable(name: str, reason: str, advice: str = "") -> InputError:
    """The error for an image that cannot be read."""
    return InputError(f"{name} cannot be read as an image: {reason}.{advice}")
