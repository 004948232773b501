"""Folders, lists, arrays and single files; classes as folders."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from adascale import InputError
from adascale.images.corruptions import Corruption, corrupted
from adascale.images.loader import load_batches
from adascale.images.sources import find_images, find_labelled
from tests.images.pictures import RGB, picture, saved


def test_folders_are_read_in_depth_and_in_order(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name in ("z.PNG", "b/c/a.jpeg", "b/x.webp"):
        picture().save(tmp_path / name)
    (tmp_path / "notes.md").write_text("not counted")
    assert [Path(key).as_posix() for key in find_images(tmp_path).keys] == ["b/c/a.jpeg", "b/x.webp", "z.PNG"]


def test_names_keep_the_path_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new" / "b").mkdir(parents=True)
    for name in ("a.png", "b/c.png", "d[1].png"):
        picture().save(tmp_path / "new" / name)
    np.savez(tmp_path / "new" / "x.npz", images=np.zeros((1, 4, 4), np.uint8))
    for given, names in (
        ("new", ["new/a.png", "new/b/c.png", "new/d[1].png"]),
        ("./new/", ["./new/a.png", "./new/b/c.png", "./new/d[1].png"]),
        (tmp_path / "new" / "b", [f"{tmp_path}/new/b/c.png"]),
        ("new/a.png", ["new/a.png"]),
        ("new/d[1].png", ["new/d[1].png"]),  # a file of this name comes before a glob
        ("new/x.npz", ["new/x.npz[0]"]),
        ("new/*.png", ["new/a.png", "new/d[1].png"]),
        ("new/**/*", ["new/a.png", "new/b/c.png", "new/d[1].png", "new/x.npz[0]"]),
        (["new/b", "new/a.png", "new"], ["new/b/c.png", "new/a.png", "new/d[1].png"]),  # a folder repeats no file
        (["new/a.png", "new/a.png"], ["new/a.png", "new/a.png"]),  # named twice, answered twice
    ):
        assert list(find_images(given).names) == names, given
    monkeypatch.chdir(tmp_path / "new")
    assert list(find_images(".").names) == ["a.png", "b/c.png", "d[1].png"]


def test_the_spelling_of_a_path_changes_neither_noise_nor_kept_activations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new").mkdir()
    picture().save(tmp_path / "new" / "a.png")
    short, long = (corrupted(find_images(given), Corruption("noise", 3)) for given in ("new", tmp_path / "new"))
    assert short.fingerprint() == long.fingerprint()
    assert short.open(0).tobytes() == long.open(0).tobytes()


def test_several_sources_are_read_in_order(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=values, labels=np.array([2, 0]))
    Image.fromarray(values[0]).save(tmp_path / "b.png")
    (tmp_path / "l.txt").write_text("b.png 1\n")
    found = find_images([tmp_path / "l.txt", tmp_path / "a.npz"])
    assert (list(found.names), found.labels) == (["b.png", *(f"{tmp_path}/a.npz[{i}]" for i in range(2))], [1, 2, 0])
    (batch,) = load_batches(found, RGB)
    assert torch.equal(batch.images[0], batch.images[1])
    assert not torch.equal(batch.images[1], batch.images[2])
    assert find_images([tmp_path / "b.png", tmp_path / "a.npz"]).labels is None
    with pytest.raises(InputError, match=r"no file or folder .*missing"):
        find_images([tmp_path / "b.png", tmp_path / "missing"])


def test_standard_input_is_an_image_or_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for suffix in (".png", ".jpg", ".gif", ".bmp", ".webp", ".tif", ".ppm"):
        picture().save(tmp_path / f"x{suffix}")
        data = (tmp_path / f"x{suffix}").read_bytes()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        found = find_images("-")
        assert list(found.names) == ["-"]
        with Image.open(tmp_path / f"x{suffix}") as image:
            assert found.open(0).tobytes() == image.tobytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{tmp_path}/x.png 3\nP5 a.png\n".encode())))
    assert list(find_images("-").names) == [f"{tmp_path}/x.png", "P5 a.png"]


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
    assert (list(found.names), found.labels) == ([f"{tmp_path}/a.npz[{i}]" for i in range(3)], [2, 0, 1])
    (batch,) = load_batches(found, RGB)
    expected = (torch.from_numpy(values).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
    assert torch.allclose(batch.images, expected, atol=1e-6)
    picture().save(tmp_path / "one.png")
    assert find_images(tmp_path / "one.png").names == [f"{tmp_path}/one.png"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p / "nothing", "no file or folder"),
        (lambda p: p, "holds no image"),
        (lambda p: (p / "e.txt").write_text("\n") and p / "e.txt", "is empty"),
        (lambda p: (p / "b.npz").write_text("zip?") and p / "b.npz", r"cannot be read as \.npz"),
        (lambda p: saved(p / "c.npz", images=np.zeros((2, 4, 4))), "float64"),
        (lambda p: saved(p / "d.npz", x=np.zeros(2)), "no array 'images'"),
        (
            lambda p: saved(p / "f.npz", images=np.zeros((2, 4, 4), np.uint8), labels=np.arange(3)),
            "2 images and 3 labels",
        ),
        (
            lambda p: saved(p / "g.npz", images=np.zeros((2, 4, 4), np.uint8), labels=np.array(0)),
            "2 images and 1 labels",
        ),
    ],
)
def test_bad_sources(tmp_path: Path, make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_images(make(tmp_path))


def test_fingerprints_follow_content(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    first = find_images(tmp_path).fingerprint()
    assert first == find_images(tmp_path).fingerprint()
    picture(seed=1).save(tmp_path / "a.png")
    assert first != find_images(tmp_path).fingerprint()


def test_folders_of_classes(tmp_path: Path) -> None:
    for part, names in (("train", "abc"), ("val", "ac"), ("other", "ad")):
        for name in names:
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("RGB", (20, 20)).save(tmp_path / part / name / "x.png")
    images, classes = find_labelled(tmp_path / "train")
    assert (images.labels, classes) == ([0, 1, 2], ["a", "b", "c"])
    assert find_labelled(tmp_path / "val", classes=classes)[0].labels == [0, 2]
    with pytest.raises(InputError, match="a class 'd' that the training images do not have"):
        find_labelled(tmp_path / "other", classes=classes)
