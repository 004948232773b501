"""What the network saw of a picture, small enough for an answer: the picture itself, and a mask over it."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from adascale.images.preprocess import Preprocess

_SIDE = 256  # pixels of the longer side
_SMALL = 64  # up to here PNG, which is exact and still small; larger pictures are JPEG


def picture_of(image: Tensor, preprocess: Preprocess | None) -> dict[str, Any] | None:
    """The input (C, H, W) as a picture again, at most 256 pixels long; None if nobody knows how it was normalised."""
    if preprocess is None or len(image) != len(preprocess.mean):
        return None
    mean, std = (torch.tensor(part).view(-1, 1, 1) for part in (preprocess.mean, preprocess.std))
    pixels = ((image.cpu().float() * std + mean) * 255).nan_to_num(0).round().clamp(0, 255).byte()
    made = Image.fromarray((pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)).numpy())
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
