"""``adascale monitor``, ``recalibrate`` and the log in ``inspect``."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adascale.decision.detector_file import KIND
from adascale.storage.rows import write_rows
from adascale.storage.tensors import save_tensors
from tests.images.pictures import picture
from tests.shell import fit, inside

Captured = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
COLUMNS = ("image", "score", "p_value", "is_ood", "prediction", "error")


@pytest.fixture
def detector(tmp_path: Path) -> Path:
    """A detector file as far as a monitor needs it."""
    random = np.random.default_rng(0)
    tensors = {
        "calibration.scores": torch.tensor(random.normal(size=300)),
        "calibration.classes": torch.tensor(random.integers(0, 4, 300)),
    }
    record = {
        **{"method": "mls", "parameters": {}, "input": {}, "about": {}},
        "calibration": {"alpha": 0.05, "images": 300, "split_seed": 0, "reference_images": 0},
        "head": {"name": "fc", "fingerprint": "", "classes": 4},
        "network": {"class": "Net", "fingerprint": ""},
    }
    save_tensors(tmp_path / "d.safetensors", tensors, record, KIND)
    return tmp_path / "d.safetensors"


def made_rows(n: int = 200, ood: float = 0.0, seed: int = 1) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    return [
        {
            "image": f"{i:03d}.png",
            "score": float(random.normal() + 5 * (random.random() < ood)),
            **{"p_value": 0.5, "is_ood": False, "prediction": int(random.integers(0, 4)), "error": None},
        }
        for i in range(n)
    ]


def watch(monkeypatch: Patch, capsys: Captured, *args: Any) -> tuple[int, dict[str, Any], str]:
    code = inside(monkeypatch, "monitor", *args, "--json")
    told = capsys.readouterr()
    return code, json.loads(told.out or "{}"), told.err


def test_id_images_exit_0_and_ood_images_exit_4(detector: Path, monkeypatch: Patch, capsys: Captured) -> None:
    scores = detector.parent / "s.csv"
    write_rows(scores, made_rows(), COLUMNS)
    assert inside(monkeypatch, "monitor", scores, "-d", detector) == 0
    told = capsys.readouterr()
    assert "200 images; 300 calibration images" in told.out
    assert "at most 0.01" in told.out
    write_rows(scores, made_rows(ood=0.3), COLUMNS)
    assert inside(monkeypatch, "monitor", scores, "-d", detector, "--report", detector.parent / "page.html") == 4
    told = capsys.readouterr()
    assert "alarm unusual (continuing) at image" in told.err
    assert "images score higher than in-distribution images do. Most evidence: " in told.out
    assert "Out-of-distribution among the last 200 images: about " in told.out
    page = (detector.parent / "page.html").read_text()
    assert page.count("<svg") == 2
    assert "Alarm: Images score higher" in page


def test_a_page_that_cannot_be_drawn_is_refused_before_the_rows_are_read(
    detector: Path, monkeypatch: Patch, capsys: Captured
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    given = ["-d", detector, "--state", detector.parent / "state", "--report", detector.parent / "page.html"]
    write_rows(detector.parent / "s.csv", made_rows(ood=0.3), COLUMNS)
    assert inside(monkeypatch, "monitor", detector.parent / "s.csv", *given) == 2
    told = capsys.readouterr().err
    assert "adascale[report]" in told
    assert "alarm" not in told
    assert not (detector.parent / "state").exists()


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl", ".parquet"])
def test_every_format_says_the_same(suffix: str, detector: Path, monkeypatch: Patch, capsys: Captured) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    first, other = detector.parent / "s.csv", detector.parent / f"other{suffix}"
    rows = made_rows(60)
    rows[5] |= {"score": None, "p_value": None, "prediction": None, "is_ood": None, "error": "no image"}
    rows[6] |= {"score": None, "error": "the network gave NaN"}
    for path in (first, other):
        write_rows(path, rows, COLUMNS)
    expected, found = (watch(monkeypatch, capsys, path, "-d", detector)[1] for path in (first, other))
    assert found == expected
    assert (found["images"], found["unreadable"]) == (59, 1)
    top = next(one for one in found["alarms"] if one["name"] == "unusual")
    assert top["log10_evidence"] != 0
    assert len(found["history"]["images"]) == 59


def test_rows_on_standard_input(detector: Path, monkeypatch: Patch, capsys: Captured) -> None:
    rows = made_rows(50)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    found = []
    for text in (lines, table.getvalue()):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        found.append(watch(monkeypatch, capsys, "-", "-d", detector)[1])
    assert found[0] == found[1]
    assert found[0]["images"] == 50


def test_a_state_goes_on_where_it_stopped(detector: Path, monkeypatch: Patch, capsys: Captured) -> None:
    rows, whole, state = made_rows(120, ood=0.3), detector.parent / "whole.csv", detector.parent / "state"
    growing = detector.parent / "growing.csv"
    write_rows(whole, rows, COLUMNS)
    write_rows(growing, rows[:70], COLUMNS)
    _, expected, _ = watch(monkeypatch, capsys, whole, "-d", detector, "--every", 2)
    watch(monkeypatch, capsys, growing, "-d", detector, "--state", state, "--every", 2)
    write_rows(growing, rows, COLUMNS)
    _, found, told = watch(monkeypatch, capsys, growing, "--state", state)
    assert found == expected
    assert "resuming after 70 rows" in told
    _, again, told = watch(monkeypatch, capsys, growing, "--state", state)  # nothing new
    assert again == expected
    write_rows(growing, made_rows(130, seed=9), COLUMNS)
    code, _, told = watch(monkeypatch, capsys, growing, "--state", state)
    assert code == 2
    assert "is not the file whose first 120 rows" in told
    code, _, told = watch(monkeypatch, capsys, whole, "--state", state, "--delta", 0.5)
    assert code == 2
    assert "--delta 0.5" in told


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (made_rows(3), [], "Which detector"),
        ([], ["-d", "d.safetensors"], "has no rows"),
        (made_rows(3), ["-d", "d.safetensors", "--delta", "2"], "--delta 2.0"),
        (made_rows(3), ["-d", "d.safetensors", "--every", "0"], "--every"),
        (made_rows(3), ["-d", "d.safetensors", "--method", "knn"], "has no column knn.score"),
        ([{**made_rows(1)[0], "score": "high"}], ["-d", "d.safetensors"], "must be a number"),
    ],
)
def test_mistakes_are_told_in_one_line(
    rows: Any, options: list[str], message: str, detector: Path, monkeypatch: Patch, capsys: Captured
) -> None:
    monkeypatch.chdir(detector.parent)
    write_rows(Path("s.csv"), rows, COLUMNS)
    assert inside(monkeypatch, "monitor", "s.csv", *options) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.strip().count("\n") == 0


def test_columns_of_several_detectors(detector: Path, monkeypatch: Patch, capsys: Captured) -> None:
    rows = [{"image": row["image"], "a.score": row["score"], "b.score": 9.0, "prediction": 0} for row in made_rows(30)]
    path = detector.parent / "s.jsonl"
    write_rows(path, rows, ("image", "a.score", "b.score", "prediction"))
    code, _, told = watch(monkeypatch, capsys, path, "-d", detector)
    assert code == 2
    assert "choose one with --method: a, b" in told
    assert watch(monkeypatch, capsys, path, "-d", detector, "--method", "b")[0] == 4


def test_a_growing_file_is_followed_and_an_interrupt_loses_nothing(detector: Path) -> None:
    scores, state, rows = detector.parent / "s.csv", detector.parent / "state", made_rows(60, ood=0.5)
    write_rows(scores, rows[:5], COLUMNS)
    command = [sys.executable, "-m", "adascale", "monitor", str(scores), "-d", str(detector), "-f", "--json"]
    with subprocess.Popen(
        [*command, "--state", str(state)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        with open(scores, "a", newline="") as file:
            csv.DictWriter(file, COLUMNS).writerows(rows[5:])
            file.write("half a li")
        first = process.stderr.readline()  # an alarm is told at once, although the file may still grow
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert first.startswith("alarm unusual")
    assert process.returncode == 4
    assert json.loads(out)["images"] == 60
    assert state.exists()


@pytest.mark.filterwarnings("always::adascale.AdascaleWarning")
def test_recalibrate_and_inspect(place: Path, monkeypatch: Patch, capsys: Captured) -> None:
    detector = fit(place, monkeypatch, "--method", "mls")
    (place / "more").mkdir()
    for i in range(12):
        picture(seed=50 + i).save(place / "more" / f"new{i:02d}.png")
    (place / "more" / "bad.png").write_bytes(b"no image")
    capsys.readouterr()
    new = place / "new.safetensors"
    assert inside(monkeypatch, "recalibrate", detector, "--with", place / "more", "-o", new) == 3
    told = capsys.readouterr()
    assert "42 calibration images" in told.out
    assert "threshold " in told.out
    assert "note: 1 of 13 images could not be read" in told.err
    assert "bad.png" in told.err
    assert inside(monkeypatch, "inspect", new) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "30 calibration images chosen by fit, from" in shown
    assert "12 calibration images added, from" in shown
    assert inside(monkeypatch, "inspect", new, "--json") == 0
    log = json.loads(capsys.readouterr().out)["audit"]
    assert {Path(name).name for name in log[1]["names"]} == {f"new{i:02d}.png" for i in range(12)}
    assert inside(monkeypatch, "score", place / "more", "-d", new, "-o", place / "s.csv") == 3
    assert inside(monkeypatch, "monitor", place / "s.csv", "-d", new, "--json") in (0, 4)
    assert inside(monkeypatch, "recalibrate", detector, "--with", place / "more", "--replace", "--json") == 3
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["change"] for one in record["audit"]] == ["fit", "replaced"]
    assert record["calibration"]["images"] == 12
