"""Everything at s3://, on a real server: what comes out is what local files give, except for the names of images."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adascale import OODDetector
from adascale.storage.remote import as_place, unfinished
from tests.shell import fit, inside, rows, trusting
from tests.stores import contents, parquet_of, s3_server, tar_of

ENERGY = ("--method", "ebo")


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with s3_server() as system:
        yield system


@pytest.fixture
def store(s3: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The images of ``id`` in every form, in an empty bucket."""
    monkeypatch.setenv("ADASCALE_CACHE", str(place / "cache"))
    s3.invalidate_cache()
    for old in s3.find("bucket"):
        s3.rm_file(old)
    images = contents(place / "id")
    for name, data in images.items():
        s3.pipe_file(f"bucket/id/{name}", data)
    s3.pipe_file("bucket/list.txt", "\n".join(f"id/{name} 1" for name in images).encode())
    s3.pipe_file("bucket/id.tar", tar_of(images))
    s3.pipe_file("bucket/id.parquet", parquet_of(list(images.values()), [1] * len(images)))
    return s3


def answers(path: Path) -> list[dict[str, str]]:
    return [{name: value for name, value in row.items() if name != "image"} for row in rows(path)]


def test_scores_of_remote_images_are_those_of_local_ones(
    store: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folder, list, tar and Parquet in; CSV, JSON lines and Parquet out."""
    detector = fit(place, monkeypatch, *ENERGY)
    assert inside(monkeypatch, "score", place / "id", "-d", detector, "-o", place / "local.csv") == 0
    local = (place / "local.csv").read_bytes().replace(f"{place}/id/".encode(), b"s3://bucket/id/")
    for source in ("id", "list.txt", "id/*.png"):
        assert inside(monkeypatch, "score", f"s3://bucket/{source}", "-d", detector, "-o", "s3://bucket/o/s.csv") == 0
        assert store.cat_file("bucket/o/s.csv") == local, source
    assert inside(monkeypatch, "score", "s3://bucket/id", "-d", detector, "-o", "s3://bucket/o/s.jsonl") == 0
    assert inside(monkeypatch, "score", "s3://bucket/id", "-d", detector, "-o", "s3://bucket/o/s.parquet") == 0
    lines = [json.loads(line) for line in store.cat_file("bucket/o/s.jsonl").splitlines()]
    assert [line["image"] for line in lines] == [f"s3://bucket/id/{name}" for name in contents(place / "id")]
    with store.open("bucket/o/s.parquet") as file:
        assert pytest.importorskip("pyarrow.parquet").read_table(file).to_pylist() == lines
    for source, first in (("id.tar", "id.tar/00.png"), ("id.parquet", "id.parquet[0]")):
        assert inside(monkeypatch, "score", f"s3://bucket/{source}", "-d", detector, "-o", place / "s.csv") == 0
        assert answers(place / "s.csv") == answers(place / "local.csv"), source
        assert rows(place / "s.csv")[0]["image"] == f"s3://bucket/{first}"
    assert sorted(store.ls("bucket/o", detail=False)) == [f"bucket/o/s.{kind}" for kind in ("csv", "jsonl", "parquet")]
    assert not list((place / "cache" / "unfinished").iterdir())


def test_a_detector_file_at_a_url(store: Any, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """fit, inspect, score and Python take it; it holds what a local one holds."""
    local = OODDetector.load(fit(place, monkeypatch, *ENERGY), trust=True)
    url = "s3://bucket/d/one.safetensors"
    monkeypatch.chdir(place)
    assert inside(monkeypatch, "fit", "s3://bucket/id", "--model", f"{place}/nets.py:Net", *ENERGY, "-o", url) == 0
    assert not (place / "s3:").exists()
    remote = OODDetector.load(url, trust=True)
    assert remote.calibration is not None
    assert local.calibration is not None
    assert remote.calibration.scores.tolist() == local.calibration.scores.tolist()
    capsys.readouterr()
    assert inside(monkeypatch, "inspect", url) == 0
    assert "calibration.threshold" in capsys.readouterr().out
    assert inside(monkeypatch, "score", place / "id", "-d", "s3://bucket/d", "-o", place / "s.csv") == 0
    assert [float(row["score"]) for row in rows(place / "s.csv")] == remote(place / "id").score.tolist()
    remote.save("s3://bucket/d/two.safetensors")
    assert store.cat_file("bucket/d/two.safetensors") == store.cat_file("bucket/d/one.safetensors")


def test_a_killed_run_resumes_to_the_same_bytes(
    store: Any, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    detector = fit(place, monkeypatch, *ENERGY)
    output = "s3://bucket/o/killed.csv"
    command = ["score", "s3://bucket/id", "-d", detector, "--batch-size", "2", "-o"]
    journal = unfinished(as_place(output), ".part")
    process = subprocess.Popen(
        [sys.executable, "-m", "adascale", *trusting([*command, output])],
        env={**os.environ, "SLOW": "0.5"},
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 90
    while not journal.exists() or len(journal.read_bytes().splitlines()) < 5:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not store.exists("bucket/o/killed.csv")  # nothing is uploaded before the end
    done = len(journal.read_bytes().splitlines()) - 1
    assert 4 <= done < 30
    capsys.readouterr()
    assert inside(monkeypatch, *command, output) == 0
    assert f"resuming after {done - done % 2} of 30 images" in capsys.readouterr().err
    assert inside(monkeypatch, *command, "s3://bucket/o/whole.csv") == 0
    assert store.cat_file("bucket/o/killed.csv") == store.cat_file("bucket/o/whole.csv")
    assert not journal.exists()


def test_what_is_wrong_is_told_in_one_line(
    store: Any, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    detector = fit(place, monkeypatch, *ENERGY)
    store.pipe_file("bucket/some/text.png", b"I am no image at all")
    store.pipe_file("bucket/some/empty.png", b"")
    store.pipe_file("bucket/some/large.png", b"x" * 2000)
    store.pipe_file("bucket/some.txt", b"some/gone.png\nid/00.png")
    capsys.readouterr()
    cases = {
        ("s3://other/id", "s.csv"): "There is no file or folder s3://other/id",
        ("s3://bucket/id", "s3://other/s.csv"): "there is no bucket other",
        ("gs://bucket/id", "s.csv"): "needs gcsfs; install it with: pip install gcsfs",
        ("nothing://bucket/id", "s.csv"): "nothing here reads nothing://",
    }
    for (source, output), message in cases.items():
        target = output if "://" in output else place / output
        assert inside(monkeypatch, "score", source, "-d", detector, "-o", target) == 2
        told = capsys.readouterr().err
        assert message in told
        assert len(told.strip().splitlines()) == 1
    assert inside(monkeypatch, "bench", "digits", "-o", "s3://bucket/results") == 2
    assert "must be a local path" in capsys.readouterr().err
    assert inside(monkeypatch, "score", "s3://bucket/some.txt", "-d", detector, "-o", place / "s.csv") == 3
    assert [row["error"] for row in rows(place / "s.csv")] == ["there is no such file", ""]
    limited = ["score", "s3://bucket/some", "-d", detector, "-o", place / "t.csv", "--max-pixels", "100"]
    assert inside(monkeypatch, *limited) == 3
    large, empty, text = (rows(place / "t.csv")[i]["error"] for i in (1, 0, 2))
    assert large == "a file of 2000 bytes is more than the 1000 of max_pixels=100"
    assert empty == text == "not an image, or a format that Pillow cannot read"
