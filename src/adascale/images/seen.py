"""What the network saw of a picture: its input as a picture again, and the pixels that were moved over it."""

from __future__ import annotations

import torch
from PIL import Image
from torch import Tensor

from adascale.images.preprocess import Preprocess

_MARK = (213, 94, 0)  # vermilion, which colour-blind readers can tell from most pictures


def input_picture(image: Tensor, preprocess: Preprocess | None) -> Image.Image | None:
    """The input (C, H, W) as a picture; None if nobody knows how it was normalised."""
    if preprocess is None or len(image) != len(preprocess.mean):
        return None
    mean, std = (torch.tensor(part).view(-1, 1, 1) for part in (preprocess.mean, preprocess.std))
    pixels = ((image.cpu().float() * std + mean) * 255).nan_to_num(0).round().clamp(0, 255).byte()
    return Image.fromarray((pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)).numpy())


def marked_picture(picture: Image.Image, moved: Tensor) -> Image.Image:
    """The picture, paler, with the pixels marked of which a channel was moved, from a mask (C, H, W)."""
    pale = Image.blend(picture.convert("RGB"), Image.new("RGB", picture.size, "white"), 0.35)
    places = Image.fromarray(moved.any(0).to(torch.uint8).mul(255).cpu().numpy())
    pale.paste(Image.new("RGB", picture.size, _MARK), mask=places.resize(picture.size, Image.Resampling.NEAREST))
    return pale
