"""The campaign runs, fails where something is wrong, keeps the input, and repeats what failed once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from adascale import Preprocess
from adascale.storage import rows
from tests.campaign import __main__ as campaign
from tests.campaign import tries as bounds
from tests.campaign.names import names
from tests.campaign.running import Cell, threads
from tests.campaign.starter import Ended
from tests.campaign.tries import Tries
from tests.conftest import ROOT


def ran(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["campaign", *arguments, "--keep", str(folder / "kept")])
    return campaign.main()


def test_a_short_campaign(tmp_path: Path) -> None:
    """In a process of its own: it looks at the peak of memory, and other tests may have left this process with much."""
    short = ["--minutes", "0.03", "--only", "images,files", "--keep", str(tmp_path / "kept")]
    done = subprocess.run([sys.executable, "-m", "tests.campaign", *short], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parts = [line.split("|") for line in done.stdout.splitlines()[2:]]
    assert [part[1].strip() for part in parts] == ["images", "files"]
    assert all(int(part[2]) > 0 == int(part[3]) for part in parts)


def test_a_failure_is_counted_and_its_input_kept(tmp_path: Path) -> None:
    tries = Tries("images", 3, 10.0, 2, tmp_path)
    draws = []
    for draw in tries.each():
        draws.append(draw.random())
        tries.attempt(lambda: str(1 / 0) if tries.count else None, b"given", "rgb.image")
    assert (tries.count, len(tries.failures)) == (2, 1)
    assert (tmp_path / "images-3-1-rgb.image").read_bytes() == b"given"
    again = Tries("images", 3, 10.0, 1, tmp_path, first=1)
    assert [draw.random() for draw in again.each()] == draws[1:]


def test_a_kept_input_is_tried_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images-3-1-rgb.image").write_bytes(b"given")
    monkeypatch.setattr(bounds, "CASES", tmp_path)
    assert Tries("images", 0, 1.0, 1, tmp_path).cases() == [("rgb.image", b"given")]
    assert Tries("files", 0, 1.0, 1, tmp_path).cases() == []


def test_hanging_and_memory_are_failures(tmp_path: Path) -> None:
    """In a process of its own: the alarm must find its own handler, whatever other tests did to signals."""
    code = f"""
import time
from pathlib import Path
from tests.campaign import tries as bounds
tries = bounds.Tries("images", 0, 1.0, 1, Path({str(tmp_path)!r}), held=0.0)
bounds.HANGS = 0.05
tries.attempt(lambda: time.sleep(5))
assert "hangs" in tries.failures[0]
bounds.MEMORY = 1e6
tries.close()
assert "GB at the peak" in tries.failures[1]
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)


def test_another_answer_for_a_damaged_picture_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Preprocess, "__call__", lambda *_: 1 / 0)
    assert ran(monkeypatch, tmp_path, "--only", "images", "--tries", "2") == 1
    assert {path.suffix for path in (tmp_path / "kept").iterdir()} == {".image"}


def test_a_damaged_file_that_is_believed_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from adascale.storage import tensors

    monkeypatch.setattr(tensors, "checksum", lambda *_: "the same")
    assert ran(monkeypatch, tmp_path, "--only", "files", "--tries", "150", "--minutes", "5") == 1
    assert any((tmp_path / "kept").iterdir())


def test_a_name_that_is_changed_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_as_json", lambda row, columns: '{"image": "other"}')
    tries = Tries("names", 0, 60.0, 8, tmp_path)
    names(tries, tmp_path)
    assert tries.failures


def test_other_logits_beside_threads_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from adascale import OODDetector

    score: Any = OODDetector.score
    monkeypatch.setattr(OODDetector, "score", lambda self, x: score(self, x) + time.perf_counter())
    tries = Tries("threads", 0, 1.0, 20, tmp_path)
    threads(tries, tmp_path)
    assert tries.failures


def test_a_promise_that_is_broken_is_seen() -> None:
    assert Cell("msp", 30).broken([0.1, 0.09, 0.11] * 50) is None
    assert "0.1200" in str(Cell("msp", 30).broken([0.12, 0.11, 0.13] * 50))
    sure = Cell("msp", 30, confidence=0.9)
    assert sure.broken([0.05] * 9 + [0.2]) is None
    assert sure.broken(([0.05] * 3 + [0.2]) * 40)


@pytest.mark.parametrize(
    ("code", "told", "wrong"),
    [
        (0, "done", None),
        (2, "adascale: the disk is full", None),
        (2, "Usage", "not told in one line"),
        (0, "Exception ignored in: x", "a traceback"),
        (1, "adascale: x", "exit code 1"),
        (98, "", "exit code 98"),
    ],
)
def test_an_unclean_end_is_seen(code: int, told: str, wrong: str | None) -> None:
    found = Ended(code, told, 1.0, 1.0).unclean(0, 2)
    assert found is None if wrong is None else str(found).startswith(wrong)
