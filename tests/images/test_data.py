"""Images as users have them: folders, lists, arrays, and files that are broken in every way."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from adascale import InputError, Preprocess
from adascale.images.loader import load_batches
from adascale.images.sources import ImageSet, find_images

RGB = Preprocess(size=16, crop=16, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
GREY = Preprocess(size=16, crop=16, mean=(0.5,), std=(0.25,))


def picture(width: int = 24, height: int = 18, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def odd_folder(folder: Path) -> dict[str, str | None]:
    """One file of each kind that goes wrong elsewhere, and the reason we give where it cannot work."""
    folder.mkdir(parents=True, exist_ok=True)
    picture().save(folder / "fine.jpg")
    (folder / "text.jpg").write_text("I am no image at all")
    buffer = io.BytesIO()
    picture(64, 64).save(buffer, "JPEG")
    (folder / "truncated.jpg").write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    (folder / "empty.png").write_bytes(b"")
    picture().convert("L").save(folder / "grey.png")
    picture().convert("CMYK").save(folder / "cmyk.jpg")
    deep = (np.arange(24 * 18, dtype=np.uint16).reshape(18, 24) * 150).astype(np.uint16)
    Image.fromarray(deep).save(folder / "deep16.png")
    frames = [picture(seed=s) for s in range(3)]
    frames[0].save(folder / "animated.gif", save_all=True, append_images=frames[1:])
    picture(1, 1).save(folder / "one_pixel.png")
    picture().convert("RGBA").save(folder / "alpha.png")
    picture().convert("P").save(folder / "palette.png", transparency=b"\x00\x01")
    Image.fromarray(np.ones((4, 4), np.float32)).save(folder / "float.tiff")
    return {
        "alpha.png": None,
        "animated.gif": None,
        "cmyk.jpg": None,
        "deep16.png": None,
        "empty.png": "not an image",
        "fine.jpg": None,
        "float.tiff": "no defined white",
        "grey.png": None,
        "one_pixel.png": None,
        "palette.png": None,
        "text.jpg": "not an image",
        "truncated.jpg": "truncated",
    }


@pytest.mark.parametrize("preprocess", [RGB, GREY], ids=["rgb", "grey"])
def test_one_answer_for_every_file(tmp_path: Path, preprocess: Preprocess) -> None:
    expected = odd_folder(tmp_path)
    found = find_images(tmp_path)
    assert list(found.names) == sorted(expected)
    batches = list(load_batches(found, preprocess, batch_size=5))
    failures = {found.names[i]: reason for batch in batches for i, reason in batch.failures.items()}
    read = [found.names[i] for batch in batches for i in batch.indices]
    assert sorted(read) == sorted(name for name, reason in expected.items() if reason is None)
    for name, reason in expected.items():
        if reason is not None:
            assert reason in failures[name]
    assert all(batch.images.shape[1:] == (len(preprocess.mean), 16, 16) for batch in batches if batch.indices)
    assert all(batch.images.isfinite().all() for batch in batches)


def test_deep_images_are_scaled_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 16 * 16).astype(np.uint16).reshape(16, 16)
    deep = GREY(Image.fromarray(ramp))
    shallow = GREY(Image.fromarray((ramp / 257).round().astype(np.uint8)))
    assert torch.equal(deep, shallow)
    assert torch.unique(deep).numel() > 200


def test_folders_are_read_in_depth_and_in_order(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name in ("z.PNG", "b/c/a.jpeg", "b/x.webp"):
        picture().save(tmp_path / name)
    (tmp_path / "notes.md").write_text("not counted")
    assert [Path(name).as_posix() for name in find_images(tmp_path).names] == ["b/c/a.jpeg", "b/x.webp", "z.PNG"]


def test_lists_in_the_usual_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture().save(tmp_path / "my cat.png")
    (tmp_path / "list.txt").write_text("my cat.png 3\n\nmissing.png -1\n")
    found = find_images(tmp_path / "list.txt")
    assert (list(found.names), found.labels) == (["my cat.png", "missing.png"], [3, -1])
    (batch,) = load_batches(found, RGB)
    assert (batch.indices, batch.failures) == ([0], {1: "there is no such file"})
    (tmp_path / "plain.txt").write_text("my cat.png\n")
    assert find_images(tmp_path / "plain.txt").labels is None
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "l.txt").write_text("my cat.png 0\n")
    assert next(load_batches(find_images(tmp_path / "lists" / "l.txt", root=tmp_path), RGB)).indices == [0]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{tmp_path / 'my cat.png'}\n"))
    assert next(load_batches(find_images("-"), RGB)).indices == [0]


def test_arrays_and_single_files(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=values, labels=np.array([2, 0, 1]))
    found = find_images(tmp_path / "a.npz")
    assert (list(found.names), found.labels) == (["a.npz[0]", "a.npz[1]", "a.npz[2]"], [2, 0, 1])
    (batch,) = load_batches(found, RGB)
    expected = (torch.from_numpy(values).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
    assert torch.allclose(batch.images, expected, atol=1e-6)
    picture().save(tmp_path / "one.png")
    assert find_images(tmp_path / "one.png").names == ["one.png"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p / "nothing", "no file or folder"),
        (lambda p: p, "holds no image"),
        (lambda p: (p / "e.txt").write_text("\n") and p / "e.txt", "is empty"),
        (lambda p: (p / "b.npz").write_text("zip?") and p / "b.npz", r"cannot be read as \.npz"),
        (lambda p: saved(p / "c.npz", images=np.zeros((2, 4, 4))), "float64"),
        (lambda p: saved(p / "d.npz", x=np.zeros(2)), "no array 'images'"),
    ],
)
def test_bad_sources(tmp_path: Path, make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_images(make(tmp_path))


def test_loading_can_start_anywhere(tmp_path: Path) -> None:
    for i in range(7):
        picture(seed=i).save(tmp_path / f"{i}.png")
    found = find_images(tmp_path)
    whole = torch.cat([batch.images for batch in load_batches(found, RGB, batch_size=2)])
    rest = list(load_batches(found, RGB, batch_size=2, start=4))
    assert [batch.indices for batch in rest] == [[4, 5], [6]]
    assert torch.equal(torch.cat([batch.images for batch in rest]), whole[4:])


def test_fingerprints_follow_content(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    first = find_images(tmp_path).fingerprint()
    assert first == find_images(tmp_path).fingerprint()
    picture(seed=1).save(tmp_path / "a.png")
    assert first != find_images(tmp_path).fingerprint()


@pytest.mark.parametrize(("mean", "std"), [((0.5,), (1.0, 1.0)), ((0.5, 0.5), (1.0, 1.0)), ((0.5,), (0.0,))])
def test_bad_preprocessing(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(InputError):
        Preprocess(size=8, crop=8, mean=mean, std=std)


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
        assert list(large.names) == ["large.jpg", "other.png", "small.jpg"]
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
