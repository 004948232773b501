"""Files, lists and labels that nobody expects: each image has a row, and nothing waits or crashes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adascale.core.errors import InputError
from adascale.images.loader import load_batches
from adascale.images.sources import find_images, find_labelled
from tests.campaign.tries import CASES
from tests.images.pictures import RGB, picture


def failures(source: Path) -> dict[str, str]:
    found = find_images(source)
    found.fingerprint()
    return {found.names[i]: reason for batch in load_batches(found, RGB) for i, reason in batch.failures.items()}


def test_links_to_nothing_and_pipes_have_a_row(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "gone.png")
    os.mkfifo(tmp_path / "c.png")
    (tmp_path / "d.png").symlink_to(tmp_path / "d.png")  # to itself
    (tmp_path / "list.txt").write_text("a.png\nb.png\nc.png\n")
    for source in (tmp_path, tmp_path / "list.txt"):
        named = {Path(name).name: reason for name, reason in failures(source).items()}
        assert named["b.png"] == "there is no such file"
        assert "no regular file" in named["c.png"]
        assert "a.png" not in named
    assert "d.png" in {Path(name).name for name in failures(tmp_path)}


@pytest.mark.parametrize("last", ["²", "--5", "9" * 5000, "٣", "1_000", "+5", "0x1", "1.0"])
def test_what_is_no_number_is_no_label(last: str, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"0000.png {last}\n")
    found = find_images(tmp_path / "list.txt")
    assert (list(found.names), found.labels) == ([f"0000.png {last}"], None)
    assert list(failures(tmp_path / "list.txt")) == [f"0000.png {last}"]
    with pytest.raises(InputError, match="no class for each image"):
        find_labelled(tmp_path / "list.txt")


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    names = ["a\u2028b.png", "a\x0cb.png", "a\x85b.png", "a\x1cb.png", "a\rb.png"]
    for name in names:
        picture().save(tmp_path / name)
    (tmp_path / "list.txt").write_bytes("\ufeff".encode() + "".join(f"{name} 3\r\n" for name in names).encode())
    found = find_images(tmp_path / "list.txt")
    assert (list(found.names), found.labels) == (names, [3] * len(names))
    assert failures(tmp_path / "list.txt") == {}


def test_names_that_no_system_takes(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"a\0b.png\n" + b"x" * 5000 + b".png\n\xff\xfe.png\n")
    assert len(failures(tmp_path / "list.txt")) == 3


def test_a_picture_that_makes_the_decoder_stumble_is_told_in_one_line() -> None:
    """A TIFF at which Pillow raises a TypeError."""
    data = (CASES / "images-1-7600-rgb.image").read_bytes()
    with pytest.raises(InputError, match="cannot be read as an image: damaged") as caught:
        RGB(data)
    assert "\n" not in str(caught.value)
