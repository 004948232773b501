"""Pictures that would take too much memory: refused by their headers, decoded in turn, never copied whole."""

from __future__ import annotations

import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from adascale.core.errors import InputError
from adascale.images import pixels
from adascale.images.limits import MAX_PIXELS, Budget
from adascale.images.loader import load_batches
from adascale.images.sources import find_images, find_labelled
from tests.images.pictures import GREY, RGB, picture, saved


def header_of(width: int, height: int) -> bytes:
    """The start of a PNG that claims this size."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + b"\0\0\0\0IDAT"


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9_500, 13_300, 60_000])
def test_too_many_pixels_are_refused_by_the_header(side: int, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(header_of(side, side))
    picture().save(tmp_path / "b.png")
    (batch,) = load_batches(find_images(tmp_path), RGB)
    assert batch.indices == [1]
    assert f"max_pixels={MAX_PIXELS}" in batch.failures[0]
    with pytest.raises(InputError, match=rf"max_pixels={MAX_PIXELS}"):
        RGB((tmp_path / "a.png").read_bytes())


def test_warnings_as_errors_give_the_same_row(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(header_of(9_500, 9_500))
    (batch,) = load_batches(find_images(tmp_path), RGB)
    assert batch.failures == {0: f"more pixels than max_pixels={MAX_PIXELS}"}


def test_the_limit_is_the_users(tmp_path: Path) -> None:
    picture(40, 30).save(tmp_path / "a.png")
    few, enough = find_images(tmp_path, max_pixels=1199), find_images(tmp_path, max_pixels=1200)
    assert next(load_batches(few, RGB)).failures == {0: "40 x 30 pixels are more than max_pixels=1199"}
    assert next(load_batches(enough, RGB)).indices == [0]
    assert few.fingerprint() != find_images(tmp_path).fingerprint()  # what was refused is read again with another limit
    with pytest.raises(InputError, match="40 x 30 pixels are more than max_pixels=1199"):
        RGB(tmp_path / "a.png", max_pixels=1199)
    assert RGB(tmp_path / "a.png", max_pixels=1200).shape == (3, 16, 16)


def test_a_limit_above_pillows_own_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow would refuse 200
    monkeypatch.setattr(pixels, "MAX_PIXELS", 100)
    picture(40, 30).save(tmp_path / "a.png")
    assert RGB(tmp_path / "a.png", max_pixels=2000).shape == (3, 16, 16)


def test_threads_share_the_memory() -> None:
    budget, most, inside = Budget(100), 0, 0
    guard = threading.Lock()

    def decode(amount: int) -> None:
        nonlocal most, inside
        with budget.share(amount):
            with guard:
                inside += amount
                most = max(most, inside)
            threading.Event().wait(0.001)
            with guard:
                inside -= amount

    threads = [threading.Thread(target=decode, args=(amount,)) for amount in (60, 50, 40, 30, 90, 10, 20, 100) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (most <= 100, inside) == (True, 0)
    with budget.share(500):  # larger than all there is: alone, but never refused
        pass


@pytest.mark.parametrize("mode", ["I;16", "I"])
@pytest.mark.parametrize("top", [200, 65535])
def test_deep_pictures_are_scaled_as_before_without_a_copy_of_doubles(mode: str, top: int) -> None:
    values = (np.arange(1500 * 1400, dtype=np.int64).reshape(1400, 1500) * 7919 % (top + 1)).astype(np.uint16)
    deep = Image.fromarray(values if mode == "I;16" else values.astype(np.int32))
    assert deep.mode == mode
    scale = 1 if mode == "I" and top <= 255 else 257
    expected = (values.astype(np.float64) / scale).round().clip(0, 255).astype(np.uint8)
    assert np.array_equal(np.asarray(pixels.eight_bit(deep)), expected)


def test_memory_of_a_large_deep_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    deep = Image.fromarray(np.full((2000, 3000), 30_000, np.uint16))
    tracemalloc.start()
    try:
        GREY.normalised(deep)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * 6_000_000  # a copy as float64 alone would be 8 bytes a pixel


class TestArrays:
    """An .npz says its shapes before it is unpacked."""

    def test_a_bomb_is_not_unpacked(self, tmp_path: Path) -> None:
        from zipfile import ZIP_DEFLATED, ZipFile

        with ZipFile(tmp_path / "a.npz", "w", ZIP_DEFLATED) as archive, archive.open("images.npy", "w") as member:
            shape = (2000, 1000, 1000)
            np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": shape})
        with pytest.raises(InputError, match=r"uint8 \(2000, 1000, 1000\), 2000000000 bytes; max_pixels="):
            find_images(tmp_path / "a.npz")

    def test_the_limit_counts_for_each_image_too(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "a.npz", images=np.zeros((1, 30, 40), np.uint8))
        assert len(find_images(path, max_pixels=1200)) == 1
        with pytest.raises(InputError, match="40 x 30 pixels are more than max_pixels=1199"):
            find_images(path, max_pixels=1199)

    def test_images_without_pixels(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "a.npz", images=np.zeros((4, 0, 8, 3), np.uint8))
        with pytest.raises(InputError, match="8 x 0 pixels; each side must be at least 1"):
            find_images(path)

    @pytest.mark.parametrize(
        "labels",
        [np.array(["a", "b"]), np.array([np.nan, 1.0]), np.zeros((2, 2), np.int64), np.array([{}, 1], object)],
        ids=["text", "nan", "table", "object"],
    )
    def test_other_labels_count_as_none(self, labels: Any, tmp_path: Path) -> None:
        path = saved(tmp_path / "a.npz", images=np.zeros((2, 4, 4, 3), np.uint8), labels=labels)
        found = find_images(path)
        assert found.labels is None
        assert torch.equal(next(load_batches(found, RGB)).images, next(load_batches(found, RGB)).images)
        with pytest.raises(InputError, match="no class for each image"):
            find_labelled(path)
