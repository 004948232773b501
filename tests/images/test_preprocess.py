"""From images to tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from adascale import InputError, Preprocess
from tests.images.pictures import GREY, RGB, picture


def test_deep_images_are_scaled_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 16 * 16).astype(np.uint16).reshape(16, 16)
    deep = GREY(Image.fromarray(ramp))
    shallow = GREY(Image.fromarray((ramp / 257).round().astype(np.uint8)))
    assert torch.equal(deep, shallow)
    assert torch.unique(deep).numel() > 200


@pytest.mark.parametrize(("mean", "std"), [((0.5,), (1.0, 1.0)), ((0.5, 0.5), (1.0, 1.0)), ((0.5,), (0.0,))])
def test_bad_preprocessing(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(InputError):
        Preprocess(size=8, crop=8, mean=mean, std=std)


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_orientation_is_that_of_the_pixels(orientation: int, tmp_path: Path) -> None:
    """As in torchvision's and timm's readers, by which networks were trained."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture(24, 18).save(tmp_path / "plain.png")
    picture(24, 18).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as turned:
        assert turned.getexif()[0x0112] == orientation
    assert torch.equal(RGB(tmp_path / "turned.png"), RGB(tmp_path / "plain.png"))
