"""Corruptions made on the fly: noise, blur, JPEG, brightness and contrast at five severities, rotation, random blur.

The strengths are those of CIFAR-10-C for 32 pixels and of ImageNet-C for 224 (Hendrycks and Dietterich, 2019), with
values between them for sizes between: what is mild for a large picture would wipe out a small one.
"""

from __future__ import annotations

import hashlib
import io
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from adascale.core.errors import InputError
from adascale.images.pixels import eight_bit
from adascale.images.sources import Change, ImageSet

SMALL, LARGE = 32, 224
# Severities 1 to 5 for a shorter side of 32 and of 224 pixels: deviation, radius, quality, shift, factor.
STRENGTHS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "noise": ((0.04, 0.06, 0.08, 0.09, 0.10), (0.08, 0.12, 0.18, 0.26, 0.38)),
    "blur": ((0.4, 0.6, 0.7, 0.8, 1.0), (1, 2, 3, 4, 6)),
    "jpeg": ((80, 65, 58, 50, 40), (25, 18, 15, 10, 7)),
    "brightness": ((0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5)),
    "contrast": ((0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)),
}
KINDS = (*STRENGTHS, "rotate")
SEVERITIES = (1, 2, 3, 4, 5)
_FORMS = f"{', '.join(STRENGTHS)} with a severity from 1 to 5, or rotate with degrees: noise:3, rotate:90"
_Values = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@dataclass(frozen=True)
class Corruption:
    """One change of every image. Noise depends on the image's name and ``seed`` alone, never on the order of images.

    severity: 1 (mild) to 5 (severe); for ``rotate`` the angle in degrees, counterclockwise.
    """

    kind: str
    severity: float
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"There is no corruption {self.kind!r}; it must be {_FORMS}.")
        value = self.severity
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if self.kind == "rotate" and not (number and value % 360):
            raise InputError(f"rotate:{value} turns nothing; give an angle in degrees that is no multiple of 360.")
        if self.kind != "rotate" and not (number and value in SEVERITIES):
            raise InputError(f"{self.kind}:{value} has no such severity; give a whole number from 1 to 5.")
        if value == int(value):
            object.__setattr__(self, "severity", int(value))  # 3.0 and 3 must give the same cache key

    def __str__(self) -> str:
        return f"{self.kind}:{self.severity}"

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> Corruption:
        """The corruption of a text such as ``noise:3`` or ``rotate:90``."""
        kind, _, severity = text.strip().partition(":")
        try:
            value = float(severity)
        except ValueError:
            raise InputError(f"The corruption {text!r} cannot be read; it must be {_FORMS}.") from None
        return cls(kind, value, seed)

    def __call__(self, image: Image.Image, name: str) -> Image.Image:
        """The changed image; greyscale stays greyscale, everything else becomes RGB."""
        image = _plain(image)
        if self.kind == "rotate":
            return _rotated(image, self.severity)
        strength = _strength(self.kind, int(self.severity), min(image.size))
        if self.kind == "blur":
            return image.filter(ImageFilter.GaussianBlur(strength))
        if self.kind == "jpeg":
            return _recoded(image, round(strength))
        values = np.array(image, dtype=np.float32) / np.float32(255)
        if self.kind == "noise":
            return _image((values + strength * _noise(values.shape, _generator(self.seed, name))) * 255)
        return _image((_brighter if self.kind == "brightness" else _flatter)(values, np.float32(strength)) * 255)


@dataclass(frozen=True)
class RandomBlur:
    """A Gaussian blur with a sigma, in pixels, that is drawn for each image uniformly from ``low`` to ``high``.

    The weights ``exp(-x^2 / (2 sigma^2))`` are cut to ``kernel`` pixels a side and sum to 1; edges are mirrored. The
    draw depends on the image's name and ``seed`` alone.
    """

    low: float
    high: float
    kernel: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < math.inf:
            raise InputError(f"sigma from {self.low} to {self.high}; give 0 < low <= high.")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise InputError(f"kernel={self.kernel}; it must be an odd number of pixels.")

    def __str__(self) -> str:
        return f"blur, sigma {self.low:g} to {self.high:g}"

    def sigma(self, name: str) -> float:
        """The draw for this image."""
        return float(_generator(self.seed, name).uniform(self.low, self.high))

    def __call__(self, image: Image.Image, name: str) -> Image.Image:
        values, reach = np.array(_plain(image), dtype=np.float32), self.kernel // 2
        weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / self.sigma(name)) ** 2).astype(np.float32)
        weights /= weights.sum()
        for axis in (0, 1):
            margin = [(reach, reach) if place == axis else (0, 0) for place in range(values.ndim)]
            padded = np.pad(values, margin, mode="reflect")
            values = np.lib.stride_tricks.sliding_window_view(padded, self.kernel, axis) @ weights
        return _image(values)


@dataclass(frozen=True)
class Recoded:
    """Every image saved as a JPEG of this quality, 1 to 100, and read again."""

    quality: int

    def __post_init__(self) -> None:
        if not 1 <= self.quality <= 100:
            raise InputError(f"quality={self.quality}; the quality of a JPEG is a number from 1 to 100.")

    def __str__(self) -> str:
        return f"JPEG, quality {self.quality}"

    def __call__(self, image: Image.Image, name: str) -> Image.Image:
        return _recoded(_plain(image), self.quality)


@dataclass(frozen=True)
class Then:
    """One change after another."""

    first: Change
    second: Change

    def __call__(self, image: Image.Image, name: str) -> Image.Image:
        return self.second(self.first(image, name), name)


def corrupted(images: ImageSet, change: Change) -> ImageSet:
    """The images with this change, made after any change that they have already.

    For example:

        >>> blurred = corrupted(find_images("my/near"), Corruption("blur", 3))
        >>> str(blurred.change)
        'blur:3'
    """
    return replace(images, change=change if images.change is None else Then(images.change, change))


def all_corruptions(seed: int = 0) -> list[Corruption]:
    """The five kinds at the five severities."""
    return [Corruption(kind, severity, seed) for kind in STRENGTHS for severity in SEVERITIES]


def _plain(image: Image.Image) -> Image.Image:
    """The image with 8 bits a channel: greyscale stays greyscale, everything else becomes RGB."""
    image = eight_bit(image)
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode in ("1", "LA") else "RGB")


def _image(values: _Values) -> Image.Image:
    return Image.fromarray(values.round().clip(0, 255).astype(np.uint8))


def _generator(seed: int, name: str) -> np.random.Generator:
    """The random numbers of one image."""
    key = hashlib.sha256(f"{seed} {name}".encode("utf8", "surrogateescape")).digest()
    return np.random.default_rng(int.from_bytes(key[:16], "big"))


def _strength(kind: str, severity: int, side: int) -> float:
    """The strength between the two tables, geometrically; above 224 pixels a blur's radius grows with the side."""
    small, large = (table[severity - 1] for table in STRENGTHS[kind])
    inside = min(max(side, SMALL), LARGE)
    share = math.log(inside / SMALL) / math.log(LARGE / SMALL)
    strength = small * math.pow(large / small, share)
    return strength * max(side / LARGE, 1) if kind == "blur" else strength


def _noise(shape: tuple[int, ...], generator: np.random.Generator) -> _Values:
    """White noise; on large images in grains as wide as a pixel at 224, or resizing would average it away."""
    grain = max(1.0, min(shape[:2]) / LARGE)
    height, width = (math.ceil(n / grain) for n in shape[:2])
    noise = generator.standard_normal((height, width, *shape[2:]), dtype=np.float32)
    if grain > 1:
        rows, columns = ((np.arange(n) / grain).astype(np.int64) for n in shape[:2])
        noise = noise[rows[:, None], columns]
    return noise


def _brighter(values: _Values, shift: np.float32) -> _Values:
    """A higher value in the sense of hue, saturation and value; a lighter grey in greyscale."""
    value = values.max(2, keepdims=True) if values.ndim == 3 else values
    target = np.minimum(value + shift, 1)
    black = value == 0
    changed: _Values = np.where(black, target, values * (target / np.where(black, 1, value)))
    return changed


def _flatter(values: _Values, factor: np.float32) -> _Values:
    mean = values.mean((0, 1), keepdims=True)
    changed: _Values = (values - mean) * factor + mean
    return changed


def _recoded(image: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    with Image.open(buffer) as coded:
        changed: Image.Image = coded.copy()  # which decodes it
    return changed


def _rotated(image: Image.Image, angle: float) -> Image.Image:
    """Quarter turns move whole pixels and swap the sides; other angles keep the size and fill with the mean colour."""
    if angle % 90 == 0:
        return image.rotate(angle % 360, expand=True)
    mean = np.asarray(image).mean((0, 1)).round().astype(int)
    fill: Any = tuple(mean.tolist()) if mean.ndim else int(mean)
    return image.rotate(angle, Image.Resampling.BILINEAR, fillcolor=fill)
