"""The command line as a user meets it: separate processes, files on disk, exit codes."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from adascale import OODDetector, cli, detectors, load_network
from adascale.data import find_images, load_batches
from adascale.rows import Journal
from tests.conftest import ROOT
from tests.test_data import odd_folder, picture

NETWORK = """
import os, time, torch
from torch import nn
PREPROCESS = {"size": 20, "crop": 16, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 128, 3, stride=2)
        self.fc = nn.Linear(128, 4)
    def forward(self, x):
        if os.environ.get("CALLS"):
            with open(os.environ["CALLS"], "a") as file:
                file.write(f"{len(x)}\\\\n")
        time.sleep(float(os.environ.get("SLOW", 0)))
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
""".replace("\\\\", "\\")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETWORK)
    (tmp_path / "id").mkdir()
    for i in range(30):
        picture(seed=i).save(tmp_path / "id" / f"{i:02d}.png")
    return tmp_path


def run(place: Path, *args: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "adascale", *map(str, args)],
        cwd=place,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def inside(monkeypatch: pytest.MonkeyPatch, *args: Any) -> int:
    """The same in this process, for speed."""
    monkeypatch.setattr(sys, "argv", ["adascale", *map(str, args)])
    monkeypatch.setattr("warnings.showwarning", None)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    code = caught.value.code
    return code if isinstance(code, int) else 0


def fit(place: Path, monkeypatch: pytest.MonkeyPatch, *extra: Any) -> Path:
    model = f"{place / 'nets.py'}:Net"
    assert inside(monkeypatch, "fit", place / "id", "--model", model, "-o", place / "d.safetensors", *extra) == 0
    return place / "d.safetensors"


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_fit_and_score_as_separate_commands(place: Path) -> None:
    done = run(place, "fit", "id", "--model", "nets.py:Net", "-o", "out/d.safetensors")
    assert done.returncode == 0, done.stderr
    assert "At most 5 % of fresh in-distribution images are flagged (20 calibration images)." in done.stdout
    assert not (place / "out" / "d.safetensors.parts").exists()
    done = run(place / "id", "score", ".", "--detector", "../out/d.safetensors", "-o", "../scores.csv")
    assert done.returncode == 0, done.stderr
    assert (done.stdout, "30 images scored" in done.stderr) == ("", True)
    written = rows(place / "scores.csv")
    model, preprocess = load_network(f"{place / 'nets.py'}:Net")
    assert preprocess is not None
    (batch,) = load_batches(find_images(place / "id"), preprocess)
    verdict = OODDetector.load(place / "out" / "d.safetensors", model)(batch.images)
    assert [row["image"] for row in written] == [f"{i:02d}.png" for i in range(30)]
    assert [float(row["score"]) for row in written] == pytest.approx(verdict.score.tolist(), rel=1e-5)
    assert [row["is_ood"] for row in written] == [str(bool(x)).lower() for x in verdict.is_ood]
    assert [int(row["prediction"]) for row in written] == verdict.prediction.tolist()
    assert all(row["error"] == "" for row in written)


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_broken_images_have_their_row_and_the_run_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = odd_folder(place / "odd")
    detector = fit(place, monkeypatch)
    for suffix in ("csv", "jsonl", "parquet"):
        output = place / f"s.{suffix}"
        assert inside(monkeypatch, "score", place / "odd", "-d", detector, "-o", output) == cli.SOME_UNREADABLE
    parquet = pytest.importorskip("pyarrow.parquet").read_table(place / "s.parquet").to_pylist()
    lines = [json.loads(line) for line in (place / "s.jsonl").read_text().splitlines()]
    assert parquet == lines
    assert [row["image"] for row in lines] == [row["image"] for row in rows(place / "s.csv")] == sorted(expected)
    for row in lines:
        reason = expected[row["image"]]
        assert (row["score"] is None) == (reason is not None), row
        assert reason is None or reason in row["error"]
    # Fitting beside broken files skips and counts them, too.
    assert inside(monkeypatch, "fit", place / "odd", "--model", f"{place / 'nets.py'}:Net", "-o", place / "e.st") == 3


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_several_methods_share_one_extraction(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--method", "adascale_a", "--method", "scale", "--method", "ebo", "--set", "scale.percentile=80"]
    base = ["fit", place / "id", "--model", f"{place / 'nets.py'}:Net"]
    monkeypatch.setenv("CALLS", str(place / "calls"))
    assert inside(monkeypatch, *base, "-o", place / "dets", *chosen) == 0
    # a look at the first image, two passes for the 30 images, then the probe of each of the three files
    assert (place / "calls").read_text().split() == ["1", "30", "30", "2", "2", "2"]
    files = sorted(path.name for path in (place / "dets").iterdir())
    assert files == ["adascale_a.safetensors", "ebo.safetensors", "scale.safetensors"]
    (place / "calls").unlink()
    assert inside(monkeypatch, "score", place / "id", "-d", place / "dets", "-o", place / "s.csv") == 0
    assert (place / "calls").read_text().split() == ["2", "2"] * 3 + ["30", "30"]
    table = rows(place / "s.csv")
    assert list(table[0]) == [
        "image",
        *(f"{m}.{c}" for m in ("adascale_a", "ebo", "scale") for c in ("score", "p_value", "is_ood")),
        "prediction",
        "error",
    ]
    assert inside(monkeypatch, *base, "-o", place / "one.st", "--method", "scale", "--set", "percentile=80") == 0
    assert inside(monkeypatch, "score", place / "id", "-d", place / "one.st", "-o", place / "one.csv") == 0
    assert [row["score"] for row in rows(place / "one.csv")] == [row["scale.score"] for row in table]
    capsys.readouterr()
    assert inside(monkeypatch, *base, "-o", place / "dets", *chosen[:-1], "percentile=80") == 2
    assert "say which method" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_all_methods_with_training_images(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (150, 20, 20, 3), dtype=np.uint8)
    np.savez(place / "train.npz", images=images, labels=np.arange(150) % 4)
    base = ["fit", place / "id", "--model", f"{place / 'nets.py'}:Net", "--method", "all"]
    assert inside(monkeypatch, *base, "-o", place / "dets", "--train", place / "train.npz") == 0
    fitted = {path.stem for path in (place / "dets").iterdir()}
    errors = capsys.readouterr().err
    assert fitted >= {cls.name for cls in detectors.ALL} - {"she"}
    assert "she" in fitted or "left out she: she needs a correctly classified" in errors
    # Without labels the methods that need them are left out, each with its sentence; asked for by name it is an error.
    assert inside(monkeypatch, *base, "-o", place / "few") == 0
    assert "left out mds: mds needs the training labels" in capsys.readouterr().err
    assert inside(monkeypatch, *base[:-1], "mds", "-o", place / "mds.st") == 2
    assert "needs the training labels" in capsys.readouterr().err


def test_broken_input_is_told_in_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    np.savez(place / "empty.npz", images=np.zeros((0, 4, 4), np.uint8))
    np.savez(place / "good.npz", images=np.zeros((4, 20, 20), np.uint8))
    (place / "cut.npz").write_bytes((place / "good.npz").read_bytes()[:-30])
    (place / "folder").mkdir()
    fitting = ["--model", "nets.py:Net", "-o"]
    for arguments, words in (
        (["fit", "empty.npz", *fitting, "x.st"], "holds no image"),
        (["fit", "cut.npz", *fitting, "x.st"], "cannot be read as .npz"),
        (["fit", "id", *fitting, "folder"], "is a folder"),
        (["fit", "id", *fitting, "nets.py/x.st"], "nets.py"),
        (["fit", "id", *fitting, "x.st", "--mean", "0.5", "--std", "0.5"], "cannot take an input of shape (1, 16, 16)"),
    ):
        capsys.readouterr()
        assert inside(monkeypatch, *arguments) == 2, arguments
        assert words in capsys.readouterr().err.strip().splitlines()[-1]


def test_another_head_does_not_resume_from_the_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = NETWORK.replace("self.fc = nn.Linear(128, 4)", "self.fc = nn.Linear(128, 4); self.fc2 = nn.Linear(128, 4)")
    two = two.replace("return self.fc(", "a = torch.relu(self.conv(x)).mean((2, 3)); return self.fc2(a), self.fc(")
    (place / "two.py").write_text(two)
    base = ["fit", place / "id", "--model", f"{place / 'two.py'}:Net", "-o", place / "h.st"]
    monkeypatch.setattr("adascale.cli.shutil", SimpleNamespace(rmtree=lambda *_, **__: None))  # the parts stay
    assert inside(monkeypatch, *base, "--head", "fc") == 0
    assert inside(monkeypatch, *base, "--head", "fc2") == 0
    resumed = (place / "h.st").read_bytes()
    assert inside(monkeypatch, *base[:-1], place / "fresh.st", "--head", "fc2") == 0
    assert (place / "fresh.st").read_bytes() == resumed


def test_stdout_is_data_only(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = fit(place, monkeypatch)
    done = run(place, "score", "id", "-d", detector)
    assert done.stdout.splitlines()[0] == "image,score,p_value,is_ood,prediction,error"
    assert len(done.stdout.splitlines()) == 31
    done = run(place, "score", "id", "-d", detector, "--json")
    assert [json.loads(line)["image"] for line in done.stdout.splitlines()] == [f"{i:02d}.png" for i in range(30)]


def test_npz_lists_and_single_files(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = fit(place, monkeypatch)
    np.savez(place / "a.npz", images=np.zeros((2, 20, 20, 3), np.uint8))
    (place / "list.txt").write_text("id/00.png 1\nid/01.png 2\n")
    for source, names in (
        ("a.npz", ["a.npz[0]", "a.npz[1]"]),
        ("list.txt", ["id/00.png", "id/01.png"]),
        ("id/05.png", ["05.png"]),
    ):
        capsys.readouterr()
        assert inside(monkeypatch, "score", place / source, "-d", detector) == 0
        assert [row["image"] for row in csv.DictReader(capsys.readouterr().out.splitlines())] == names


@pytest.mark.parametrize("killed", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("verb", ["fit", "score"])
def test_an_interrupted_run_goes_on_where_it_stopped(
    place: Path, monkeypatch: pytest.MonkeyPatch, verb: str, killed: signal.Signals
) -> None:
    detector = fit(place, monkeypatch)
    if verb == "fit":
        arguments = ["fit", "id", "--model", "nets.py:Net", "-o", "again.safetensors", "--batch-size", "3"]
        partial, output = place / "again.safetensors.parts", place / "again.safetensors"
    else:
        arguments = ["score", "id", "-d", str(detector), "-o", "s.csv", "--batch-size", "3"]
        partial, output = place / "s.csv.part", place / "s.csv"
    command = [sys.executable, "-m", "adascale", *arguments]
    slow = {**os.environ, "SLOW": "0.3"}
    process = subprocess.Popen(command, cwd=place, env=slow, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _progressed(partial):
        time.sleep(0.05)
    process.send_signal(killed)
    _, errors = process.communicate(timeout=60)
    assert _progressed(partial)
    if killed == signal.SIGINT:
        assert process.returncode == 130
        assert "goes on where it stopped" in errors
    done = run(place, *arguments, CALLS=str(place / "calls"))
    assert done.returncode == 0, done.stderr
    passes = len((place / "calls").read_text().splitlines())
    assert passes < 22  # ten batches of two passes and a look at the first image or the probe, had it started over
    assert not partial.exists()
    first = output.read_bytes()
    output.unlink()
    assert run(place, *arguments).returncode == 0
    assert output.read_bytes() == first


def _progressed(partial: Path) -> bool:
    if partial.is_dir():
        return len(list(partial.glob("id/*.safetensors"))) >= 2
    return partial.is_file() and len(partial.read_text().splitlines()) > 3


def test_stale_partial_results_are_not_used(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "s.csv", key="old")
    journal.append([{"image": "a"}])
    assert Journal(tmp_path / "s.csv", key="old").done() == 1
    with open(tmp_path / "s.csv.part", "a") as file:
        file.write('{"image": "cut o')
    assert Journal(tmp_path / "s.csv", key="old").done() == 1  # the torn line is dropped
    assert Journal(tmp_path / "s.csv", key="new").done() == 0


def test_settings_presets_and_preprocessing(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["--preset", "imagenet/resnet-50", "--set", "p_max=90", "--set", "pixels=random", "--alpha", "0.2"]
    detector = fit(place, monkeypatch, *extra, "--size", "24", "--crop", "18", "--mean", "0.1,0.2,0.3", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert inside(monkeypatch, "inspect", detector, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert {**record, "file": str(detector), "skipped": {}} == printed
    parameters = record["parameters"]
    assert (parameters["p_min"], parameters["p_max"], parameters["pixels"]) == (80, 90, "random")
    assert record["input"]["shape"] == [3, 18, 18]
    assert record["input"]["preprocess"]["mean"] == [0.1, 0.2, 0.3]
    assert record["input"]["preprocess"]["std"] == [0.25, 0.25, 0.25]
    assert inside(monkeypatch, "inspect", detector) == 0
    assert "adascale_a" in capsys.readouterr().out


def test_methods(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert inside(monkeypatch, "methods", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in listed] == [cls.name for cls in detectors.ALL]
    assert inside(monkeypatch, "methods", "adascale_l") == 0
    assert "S = -E(z r^2)" in capsys.readouterr().out
    assert inside(monkeypatch, "methods") == 0
    table = capsys.readouterr().out
    assert all(cls.name in table for cls in detectors.ALL)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "nowhere", "--model", "{m}", "-o", "x.st"], "no file or folder"),
        (["fit", "id", "--model", "resnet50", "-o", "x.st"], "none of the forms"),
        (["fit", "id", "--model", "{m}", "-o", "x.st", "--method", "magic"], "no method 'magic'"),
        (["fit", "id", "--model", "{m}", "-o", "x.st", "--set", "p_mx=3"], "no parameter 'p_mx'"),
        (["fit", "id", "--model", "{m}", "-o", "x.st", "--set", "p_max=high"], "such as 85"),
        (["fit", "id", "--model", "{m}", "-o", "x.st", "--preset", "mars/rover"], "No preset"),
        (["fit", "id", "--model", "{m}", "-o", "x.st", "--mean", "a,b"], "separated by commas"),
        (["fit", "id", "--model", "{m}", "-o", "x.st", "--device", "warp"], "cannot be used here"),
        (["fit", "id", "--model", "{m}", "-o", "x.st", "--alpha", "5"], "above 0 and below 1"),
        (["fit", "id", "--model", "{m}", "-o", "x.st", "--head", "conv"], "Candidates"),
        (["score", "id", "-d", "nothing.st"], "no detector file"),
        (["score", "id", "-d", "nets.py"], "damaged or not"),
        (["inspect", "nets.py"], "damaged or not"),
        (["score", "id", "-d", "{d}", "-o", "s.xlsx"], "must end in .csv"),
        (["score", "id", "-d", "{d}", "--model", "{other}"], "other layers, weights or precision"),
    ],
)
def test_mistakes_cost_one_line_and_exit_2(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(place)
    detector = fit(place, monkeypatch) if "{d}" in arguments else None
    (place / "other.py").write_text(NETWORK.replace("manual_seed(0)", "manual_seed(1)"))
    names = {"{m}": "nets.py:Net", "{d}": str(detector), "{other}": "other.py:Net"}
    capsys.readouterr()
    assert inside(monkeypatch, *(names.get(argument, argument) for argument in arguments)) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("adascale: ")
    assert words in message


def test_a_network_without_preprocessing_is_asked_for_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "bare.py").write_text(NETWORK.replace("PREPROCESS", "_UNUSED"))
    base = ["fit", place / "id", "--model", f"{place / 'bare.py'}:Net", "-o", place / "x.st"]
    assert inside(monkeypatch, *base) == 2
    assert "--size, --crop, --mean and --std" in capsys.readouterr().err
    assert inside(monkeypatch, *base, "--size", "16") == 2
    assert "also pass --mean, --std" in capsys.readouterr().err
    given = ["--size", "16,16", "--mean", "0.5,0.5,0.5", "--std", "0.2,0.2,0.2"]
    assert inside(monkeypatch, *base, *given) == 0


def test_version_and_readme_exit_codes(place: Path) -> None:
    assert run(place, "--version").stdout.strip() == __import__("adascale").__version__
    assert run(place, "fit").returncode == 2
    readme = (ROOT / "README.md").read_text()
    assert all(code in readme for code in ("`0`", "`2`", "`3`", "`130`"))


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_ten_images_are_enough_to_start(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "ten.txt").write_text("".join(f"id/{i:02d}.png\n" for i in range(10)))
    done = run(place, "fit", "ten.txt", "--model", "nets.py:Net", "-o", "ten.safetensors")
    assert done.returncode == 0
    assert "note: At most 16.7 %" in done.stderr
    assert "5 % needs at least 19" in done.stderr
    assert torch.isfinite(
        torch.tensor(OODDetector.load(place / "ten.safetensors", load_network(f"{place / 'nets.py'}:Net")[0]).threshold)
    )
