"""The command line as a user meets it: separate processes, files on disk, exit codes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from adascale import OODDetector, detectors, load_network
from adascale.cli import console
from adascale.images.loader import load_batches
from adascale.images.sources import find_images
from tests.conftest import ROOT
from tests.images.pictures import odd_folder
from tests.shell import NETWORK, fit, inside, rows, run


def test_fit_and_score_as_separate_commands(place: Path) -> None:
    done = run(place, "fit", "id", "--model", "nets.py:Net", "-o", "out/d.safetensors")
    assert done.returncode == 0, done.stderr
    assert "At most 5 % of fresh in-distribution images are flagged on average;" in done.stdout
    assert "90 % of detectors with 20 calibration images flag 0.3 to 13.9 %." in done.stdout
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
    monkeypatch.chdir(place)
    for suffix in ("csv", "jsonl", "parquet"):
        output = place / f"s.{suffix}"
        assert inside(monkeypatch, "score", "odd", "-d", detector, "-o", output) == console.SOME_UNREADABLE
    parquet = pytest.importorskip("pyarrow.parquet").read_table(place / "s.parquet").to_pylist()
    lines = [json.loads(line) for line in (place / "s.jsonl").read_text().splitlines()]
    assert parquet == lines
    names = [f"odd/{name}" for name in sorted(expected)]
    assert [row["image"] for row in lines] == [row["image"] for row in rows(place / "s.csv")] == names
    for row in lines:
        reason = expected[row["image"].removeprefix("odd/")]
        assert (row["score"] is None) == (reason is not None), row
        assert reason is None or reason in row["error"]
    # Fitting beside broken files skips and counts them, too.
    assert inside(monkeypatch, "fit", place / "odd", "--model", f"{place / 'nets.py'}:Net", "-o", place / "e.st") == 3


def test_stdout_is_data_only(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = fit(place, monkeypatch)
    done = run(place, "score", "id", "-d", detector)
    assert done.stdout.splitlines()[0] == "image,score,p_value,is_ood,prediction,error"
    assert len(done.stdout.splitlines()) == 31
    done = run(place, "score", "id", "-d", detector, "--jsonl")
    assert [json.loads(line)["image"] for line in done.stdout.splitlines()] == [f"id/{i:02d}.png" for i in range(30)]


def test_npz_lists_and_single_files(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = fit(place, monkeypatch)
    np.savez(place / "a.npz", images=np.zeros((2, 20, 20, 3), np.uint8))
    (place / "list.txt").write_text("id/00.png 1\nid/01.png 2\n")
    monkeypatch.chdir(place)
    for sources, names in (
        (["a.npz"], ["a.npz[0]", "a.npz[1]"]),
        (["list.txt"], ["id/00.png", "id/01.png"]),
        (["id/05.png"], ["id/05.png"]),
        (["id/0[12].png", "./id/29.png", "a.npz"], ["id/01.png", "id/02.png", "./id/29.png", "a.npz[0]", "a.npz[1]"]),
    ):
        capsys.readouterr()
        assert inside(monkeypatch, "score", *sources, "-d", detector) == 0
        assert [row["image"] for row in csv.DictReader(capsys.readouterr().out.splitlines())] == names


def test_settings_presets_and_preprocessing(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["--preset", "imagenet/resnet-50", "--set", "p_max=90", "--set", "pixels=random", "--alpha", "0.2"]
    detector = fit(place, monkeypatch, *extra, "--size", "24", "--crop", "18", "--mean", "0.1,0.2,0.3", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert inside(monkeypatch, "inspect", detector, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    names = record["audit"][0]["names"]  # inspect shows them, fit their number
    assert {Path(name).parent for name in names} == {place / "id"}
    shown = {**record, "audit": [{**record["audit"][0], "names": len(names)}]}
    assert {**shown, "file": str(detector), "skipped": {}} == printed
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
        (["fit", "id", "--model", "{m}", "-o", "x.st", "--set", "p_max=high"], "such as 60"),
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


def test_version_and_documented_exit_codes(place: Path) -> None:
    assert run(place, "--version").stdout.strip() == __import__("adascale").__version__
    assert run(place, "fit").returncode == 2
    page = (ROOT / "docs" / "command-line.md").read_text()
    assert all(code in page for code in ("`0`", "`2`", "`3`", "`4`", "`130`"))


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


def test_a_python_file_that_a_detector_names_is_run_only_if_it_is_trusted(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    detector = fit(place, monkeypatch, "--method", "msp")
    (place / "nets.py").write_text(f"import pathlib\npathlib.Path({str(place / 'ran')!r}).touch()\n" + NETWORK)
    commands = (
        ["score", place / "id", "-d", detector],
        ["export", detector, "-o", place / "m.onnx"],
    )
    for command in commands:
        capsys.readouterr()
        monkeypatch.setattr("tests.shell.trusting", lambda args: list(map(str, args)))
        assert inside(monkeypatch, *command) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert "nets.py:Net, and loading it runs that Python file; pass --trust if you trust it" in lines[0]
    assert inside(monkeypatch, "inspect", detector) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"runs code {place / 'nets.py'}, a Python file" in shown
    assert not (place / "ran").exists()
    assert inside(monkeypatch, "score", place / "id", "-d", detector, "-o", place / "a.csv", "--trust") == 0
    assert (place / "ran").exists()
    model = ["--model", f"{place / 'nets.py'}:Net"]
    assert inside(monkeypatch, "score", place / "id", "-d", detector, "-o", place / "b.csv", *model) == 0
    assert (place / "a.csv").read_bytes() == (place / "b.csv").read_bytes()
