"""Decoding of images: to 8 bits a channel, and of large JPEGs at a fraction of their size."""

from __future__ import annotations

import numpy as np
from PIL import Image

DRAFTED = "adascale: size and box before draft"


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
        image.info[DRAFTED] = (size, answer[1])
