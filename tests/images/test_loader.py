"""Batches of images as users have them, with files that are broken in every way, and large JPEGs."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from adascale import Preprocess
from adascale.images.loader import load_batches
from adascale.images.pixels import shallow_hint
from adascale.images.sources import ImageSet, find_images
from tests.images.pictures import GREY, RGB, odd_folder, picture


@pytest.mark.parametrize("preprocess", [RGB, GREY], ids=["rgb", "grey"])
def test_one_answer_for_every_file(tmp_path: Path, preprocess: Preprocess) -> None:
    expected = odd_folder(tmp_path)
    found = find_images(tmp_path)
    assert list(found.names) == [f"{tmp_path}/{name}" for name in sorted(expected)]
    batches = list(load_batches(found, preprocess, batch_size=5))
    failures = {found.keys[i]: reason for batch in batches for i, reason in batch.failures.items()}
    read = [found.keys[i] for batch in batches for i in batch.indices]
    assert sorted(read) == sorted(name for name, reason in expected.items() if reason is None)
    for name, reason in expected.items():
        if reason is not None:
            assert reason in failures[name]
    assert all(batch.images.shape[1:] == (len(preprocess.mean), 16, 16) for batch in batches if batch.indices)
    assert all(batch.images.isfinite().all() for batch in batches)


def test_a_bright_image_that_another_thread_sees_meanwhile_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a dark 16-bit image is looked at, a bright one is: all of them are not dark, whoever ends last."""
    dark, bright = np.full((18, 20), 100, np.uint16), np.full((18, 20), 60_000, np.uint16)
    looked = threading.Event()

    def slow_if_dark(image: Image.Image, name: str) -> str:
        found = shallow_hint(image, name)
        if found:
            assert looked.wait(20)
        else:
            looked.set()
        return found

    monkeypatch.setattr("adascale.images.loader.shallow_hint", slow_if_dark)
    for name, values in (("0.png", dark), ("1.png", bright)):
        Image.fromarray(values).save(tmp_path / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(load_batches(find_images(tmp_path), GREY, workers=2))


def test_loading_can_start_anywhere(tmp_path: Path) -> None:
    for i in range(7):
        picture(seed=i).save(tmp_path / f"{i}.png")
    found = find_images(tmp_path)
    whole = torch.cat([batch.images for batch in load_batches(found, RGB, batch_size=2)])
    rest = list(load_batches(found, RGB, batch_size=2, start=4))
    assert [batch.indices for batch in rest] == [[4, 5], [6]]
    assert torch.equal(torch.cat([batch.images for batch in rest]), whole[4:])


class TestDraft:
    """Large JPEGs at a fraction of their size: close to the full decoding, and only where it is asked for."""

    @pytest.fixture
    def large(self, tmp_path: Path) -> ImageSet:
        picture(400, 400).resize((1600, 1200), Image.Resampling.BICUBIC).save(tmp_path / "large.jpg", quality=95)
        picture(30, 24).save(tmp_path / "small.jpg", quality=95)
        picture(400, 400).save(tmp_path / "other.png")
        return find_images(tmp_path)

    def test_pixels_stay_close(self, large: ImageSet) -> None:
        exact = next(load_batches(large, RGB)).images
        quick = next(load_batches(large, replace(RGB, draft=True))).images
        assert list(large.keys) == ["large.jpg", "other.png", "small.jpg"]
        assert not torch.equal(quick[0], exact[0])
        assert float((quick[0] - exact[0]).abs().max()) * 0.25 * 255 < 6  # of 255
        assert torch.equal(quick[1:], exact[1:])  # no JPEG; too small already

    @pytest.mark.parametrize("size", [(1001, 751), (513, 377), (2007, 1505)])
    def test_sizes_that_cannot_be_divided(self, size: tuple[int, int], tmp_path: Path) -> None:
        picture(60, 45).resize(size, Image.Resampling.BICUBIC).save(tmp_path / "odd.jpg", quality=95)
        whole = replace(RGB, size=50, crop=None)
        exact, quick = (
            next(load_batches(find_images(tmp_path), replace(whole, draft=draft))).images for draft in (False, True)
        )
        assert exact.shape == quick.shape
        assert float((quick - exact).abs().mean()) * 0.25 * 255 < 1  # of 255; a shift of half a pixel gives 4

    def test_never_below_twice_the_size(self, large: ImageSet) -> None:
        assert large.open(0).size == (1600, 1200)
        assert large.open(0, least=32).size == (200, 150)
        assert large.open(0, least=200).size == (400, 300)
        assert large.open(0, least=900).size == (1600, 1200)
