"""Files that are written completely or not at all, and tensor files whose damage is noticed."""

from __future__ import annotations

import csv
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from adascale import InputError
from adascale.storage.atomic import replacing, write_text
from adascale.storage.reading import read_rows
from adascale.storage.rows import Journal, write_rows
from adascale.storage.tensors import ForeignFileError, TensorFileError, load_record, load_tensors, save_tensors

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2])}


def test_a_file_appears_in_one_step(tmp_path: Path) -> None:
    target = tmp_path / "new" / "x.txt"
    with replacing(target) as temporary:
        temporary.write_text("half")
        assert not target.exists()
        assert temporary.parent == target.parent
    assert target.read_text() == "half"
    assert [path.name for path in target.parent.iterdir()] == ["x.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_text(tmp_path / "x.txt", "old")

    def interrupted() -> None:
        with replacing(tmp_path / "x.txt") as temporary:
            temporary.write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "x.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]


def test_two_writers_do_not_share_a_temporary_file(tmp_path: Path) -> None:
    with replacing(tmp_path / "x") as first, replacing(tmp_path / "x") as second:
        assert first != second


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "x.txt", "x")
        save_tensors(tmp_path / "x.safetensors", TENSORS, {}, "test")
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_text_keeps_line_ends_and_odd_file_names(tmp_path: Path) -> None:
    path = write_text(tmp_path / "x.txt", "a\n\udce9\n")
    assert path.read_bytes() == b"a\n\xe9\n"


def test_tensors_and_their_record_come_back(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    record = save_tensors(path, TENSORS, {"shape": (2, 3), "name": "é"}, "test")
    found = load_tensors(path, "test")
    assert found.record == record == {"format": "test", "format_version": 1, "shape": [2, 3], "name": "é"}
    assert load_record(path, "test") == record
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in TENSORS.items())
    again = tmp_path / "y.safetensors"
    save_tensors(again, dict(reversed(TENSORS.items())), {"name": "é", "shape": [2, 3]}, "test")
    assert again.read_bytes() == path.read_bytes()  # equal content, equal files


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {"name": "x"}, "test")
    content = path.read_bytes()
    for at in range(0, len(content), 5):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(TensorFileError):
            load_tensors(path, "test")


def test_other_files_are_told_apart_from_damaged_ones(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file(TENSORS, path)
    with pytest.raises(ForeignFileError, match="not of the format test"):
        load_tensors(path, "test")
    save_tensors(path, TENSORS, {}, "other")
    with pytest.raises(ForeignFileError):
        load_tensors(path, "test")
    save_tensors(path, TENSORS, {"format_version": 99}, "test")
    with pytest.raises(TensorFileError, match="has the format test 99; this version reads 1"):
        load_tensors(path, "test")
    path.write_bytes(b"text")
    with pytest.raises(TensorFileError, match="damaged or not a safetensors file"):
        load_tensors(path, "test")
    assert load_record(path, "test") == {}
    assert issubclass(TensorFileError, InputError)


def test_rows_in_the_format_of_the_suffix(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"image": "a", "is_ood": True, "score": 0.1},
        {"image": "b\udce9", "is_ood": None, "score": None},
    ]
    for suffix in (".csv", ".jsonl", ".parquet"):
        if suffix == ".parquet":
            parquet = pytest.importorskip("pyarrow.parquet")
        write_rows(tmp_path / f"x{suffix}", rows, ["image", "is_ood", "score"])
    with open(tmp_path / "x.csv", newline="", errors="surrogateescape") as file:
        assert list(csv.reader(file)) == [["image", "is_ood", "score"], ["a", "true", "0.1"], ["b\udce9", "", ""]]
    assert [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()] == rows
    table = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert table == [rows[0], {"image": "b�", "is_ood": None, "score": None}]


@pytest.mark.parametrize("name", ["=1+1.png", "+a.png", "-a.png", "@a.png", "\tb.png", "\rc.png"])
def test_a_name_is_no_formula_in_a_spreadsheet(name: str, tmp_path: Path) -> None:
    """The path stays that of the same file; other texts are marked as texts."""
    row = {"image": name, "class": name, "score": -1.5, "error": None}
    write_rows(tmp_path / "s.csv", [row, {**row, "image": "a.png", "class": "b"}, {**row, "image": "-"}], list(row))
    with open(tmp_path / "s.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert [one["image"] for one in read] == [f"./{name}", "a.png", "-"]
    assert [one["class"] for one in read] == [f"'{name}", "b", f"'{name}"]
    assert [one["score"] for one in read] == ["-1.5"] * 3
    write_rows(tmp_path / "s.json", [row], list(row))
    assert json.loads((tmp_path / "s.json").read_text())[0]["image"] == name


@pytest.mark.parametrize("name", ["a\rb.png", "a\nb.png", 'a"b,c.png', "a\r\nb.png"])
def test_any_name_keeps_its_row(name: str, tmp_path: Path) -> None:
    rows = [{"image": one, "score": 0.5, "is_ood": True, "error": None} for one in ("x", name, "y")]
    write_rows(tmp_path / "s.csv", rows, list(rows[0]))
    with open(tmp_path / "s.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert [one["image"] for one in read] == ["x", name, "y"]
    assert all((one["score"], one["is_ood"], one["error"]) == ("0.5", "true", "") for one in read)


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "parquet"])
def test_rows_at_a_url_are_read_back(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADASCALE_CACHE", str(tmp_path))
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    rows = [{"image": f"s3://b/{i}.png", "score": i / 2} for i in range(5)]
    for place in (f"memory://rows/s.{suffix}", str(tmp_path / f"s.{suffix}")):
        journal = Journal(place, "key")
        journal.append(rows)
        journal.finish(["image", "score"], 5)
    read = list(read_rows(f"memory://rows/s.{suffix}"))
    assert read == list(read_rows(str(tmp_path / f"s.{suffix}")))
    assert [(row["image"], float(row["score"])) for row in read] == [(row["image"], row["score"]) for row in rows]
    with pytest.raises(InputError, match="cannot be followed"):
        read_rows(f"memory://rows/s.{suffix}", waiting=lambda: None)


def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("adascale.storage.tensors.save_file", full)
    with pytest.raises(InputError, match=r"x\.safetensors cannot be written: .*No space left on device"):
        save_tensors(tmp_path / "x.safetensors", TENSORS, {}, "test")
    with pytest.raises(InputError, match=r"x\.csv cannot be written: No space left on device\."):  # noqa: SIM117
        with replacing(tmp_path / "x.csv"):
            raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []
