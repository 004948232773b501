"""What the network saw of a picture, small enough for an answer: the picture itself, and a mask over it."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import torch
from torch import Tensor

from adascale.images.preprocess import Preprocess
from adascale.images.seen import input_picture

_SIDE = 256  # pixels of the longer side
_SMALL = 64  # up to here PNG, which is exact and still small; larger pictures are JPEG


def picture_of(image: Tensor, preprocess: Preprocess | None) -> dict[str, Any] | None:
    """The input (C, H, W) as a picture again, at most 256 pixels long; None if nobody knows how it was normalised."""
    made = input_picture(image, preprocess)
    if made is None:
        return None
    size = {"width": made.width, "height": made.height}
    made.thumbnail((_SIDE, _SIDE))
    form, file = "png" if max(made.size) <= _SMALL else "jpeg", io.BytesIO()
    made.save(file, form, quality=90)
    return {**size, "picture": f"data:image/{form};base64,{base64.b64encode(file.getvalue()).decode()}"}


def mask_of(moved: Tensor) -> dict[str, Any]:
    """The pixels of which a channel was moved, from a mask (C, H, W), at most 256 x 256 places.

    bits: one for each place, row by row, the first the highest of its byte, in base64. In a larger picture a place
    stands for several pixels, and is set if one of them was moved.
    """
    pixels = moved.any(0)
    step = math.ceil(max(pixels.shape) / _SIDE)
    if step > 1:
        pixels = torch.nn.functional.max_pool2d(pixels[None].float(), step, ceil_mode=True)[0] > 0
    height, width = pixels.shape
    flat = torch.zeros(math.ceil(height * width / 8) * 8, dtype=torch.uint8)
    flat[: height * width] = pixels.flatten()
    octets = (flat.view(-1, 8) << torch.arange(7, -1, -1, dtype=torch.uint8)).sum(1, dtype=torch.uint8)
    return {"width": width, "height": height, "bits": base64.b64encode(octets.numpy().tobytes()).decode()}
