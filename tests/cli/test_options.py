"""Options have the same names everywhere, old ones work with a note, mistakes are told before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from adascale.cli import checks
from adascale.core.errors import InputError
from tests.shell import fit, inside, rows, run

LOUD = """
print("loaded!")
raise SystemError("the network was loaded")
def net(): ...
"""
FIT = ["fit", "id", "--model", "loud.py:net", "-o", "x.st"]
BENCH = ["bench", "--id", "id", "--near", "near=new", "--model", "loud.py:net", "--no-report"]
TUNE = ["tune", "--id", "id", "--model", "loud.py:net"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*FIT, "--alpha", "5"], "--alpha 5.0; it is the share"),
        ([*FIT, "--size", "big"], "--size big: give numbers"),
        ([*FIT, "--size", "0"], "--size 0: give one length in pixels"),
        ([*FIT, "--crop", "1,2,3"], "--crop 1,2,3: give one length in pixels"),
        ([*FIT, "--mean", "0.5,0.5"], "--mean 0.5,0.5: give 3 values (RGB) or 1"),
        ([*FIT, "--std", "0.2,0,0.2"], "--std 0.2,0,0.2: give 3 values (RGB) or 1 (greyscale), each above 0"),
        ([*FIT, "--set", "p_max"], "--set p_max: give NAME=VALUE"),
        ([*FIT, "--set", "p_max=120"], "p_max=120"),
        ([*FIT, "--set", "p_mx=90"], "did you mean 'p_max'?"),
        ([*FIT, "--device", "warp"], "--device warp cannot be used here"),
        ([*FIT, "--device", "GPU 1"], "--device GPU 1 cannot be used here"),
        ([*FIT, "--preset", "imagenet/resnet50x"], "did you mean 'imagenet/resnet-50'?"),
        ([*FIT, "--weights", "nothing.pth"], "There is no weights file nothing.pth"),
        ([*FIT[:-1], "loud.py/x.st"], "loud.py is a file, not a folder"),
        ([*FIT[:-1], "id"], "is a folder; name a file"),
        (["fit", "id", "--model", "loud.py", "-o", "x.st"], "lacks the name of its factory; it has net"),
        (["fit", "id", "--model", "torchvison:resnet18", "-o", "x.st"], "did you mean 'torchvision:resnet18'?"),
        ([*BENCH, "--method", "scal"], "There is no method 'scal'; did you mean 'scale'?"),
        ([*BENCH, "--set", "scale.percentile=200"], "percentile=200"),
        ([*BENCH, "--preset", "cifar/resnet-50"], "No preset for cifar/resnet-50"),
        ([*BENCH, "--out", "loud.py/results"], "loud.py is a file, not a folder"),
        ([*BENCH, "--cache-limit", "lots"], "--cache-limit lots: give a size"),
        ([*BENCH, "--device", "warp"], "--device warp cannot be used here"),
        ([*TUNE, "--grid", "p_mx=1,2"], "--grid 'p_mx=1,2'"),
        ([*TUNE, "--by", "ood"], "--by ood: there are no OOD validation images"),
        ([*TUNE, "--method", "msp"], "msp has nothing left to tune"),
        ([*TUNE, "--model", "loud.py:net"], "2 networks; tune one at a time"),
        (["study", "lamda"], "There is no study 'lamda'; did you mean 'lambda'?"),
        (["bench", "cifar1O"], "There is no suite cifar1O; did you mean 'cifar10'?"),
    ],
)
def test_mistakes_are_told_before_a_network_is_loaded(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(place)
    (place / "loud.py").write_text(LOUD)
    (place / "id").rename(place / "all")
    for folder in ("id", "new"):
        (place / folder).mkdir()
    for index, file in enumerate(sorted((place / "all").iterdir())):
        file.rename(place / ("id" if index < 20 else "new") / file.name)
    assert inside(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert "loaded!" not in captured.out


def test_old_spellings_work_with_a_note(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert inside(monkeypatch, "fit", "id", "--model", "nets.py:Net", "--output", "d.st") == 0
    assert "note: --output is now --out; the old name works in this release only." in capsys.readouterr().err
    assert inside(monkeypatch, "score", "id", "-d", "d.st", "--output=s.csv") == 0
    assert "note: --output is now --out" in capsys.readouterr().err
    own = ["--id", "id", "--near", "id", "--model", "nets.py:Net", "--no-report"]
    assert inside(monkeypatch, "bench", *own, "--methods", "magic") == 2
    told = capsys.readouterr().err
    assert "note: --methods is now --method" in told
    assert "no method 'magic'" in told


def test_rows_as_one_document_or_as_lines(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["score", place / "id", "-d", fit(place, monkeypatch), "--batch-size", "8"]
    assert inside(monkeypatch, *base, "--out", place / "s.csv") == 0
    names = [row["image"] for row in rows(place / "s.csv")]
    capsys.readouterr()
    assert inside(monkeypatch, *base, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["image"] for row in document] == names
    assert inside(monkeypatch, *base, "--jsonl") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == document
    assert inside(monkeypatch, *base, "-o", place / "s.json") == 0
    assert json.loads((place / "s.json").read_text()) == document
    for other in (["--json"], ["-o", place / "x.csv"]):
        assert inside(monkeypatch, *base, "--jsonl", *other) == 2
        assert "--jsonl prints rows on stdout" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_several_methods_are_tuned_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    np.savez("many.npz", images=np.random.default_rng(0).integers(0, 256, (64, 20, 20, 3), np.uint8))
    base = ["tune", "--id", "many.npz", "--model", "nets.py:Net"]
    assert inside(monkeypatch, *base, "--method", "scale,lts", "--method", "ash_s", "-o", "t.csv", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["method"] for one in found] == ["scale", "lts", "ash_s"]
    assert {row["method"] for row in rows(place / "t.csv")} == {"scale", "lts", "ash_s"}
    assert inside(monkeypatch, *base, "--method", "all", "--json") == 0
    captured = capsys.readouterr()
    assert {"scale", "adascale_a"} <= {one["method"] for one in json.loads(captured.out)}
    assert "left out msp: msp has nothing left to tune" in captured.err


@pytest.mark.parametrize("command", ["fit", "score", "bench", "tune", "study", "train", "demo"])
def test_every_command_that_writes_has_out(command: str, tmp_path: Path) -> None:
    text = run(tmp_path, command, "--help", COLUMNS="200").stdout
    (line,) = [line for line in text.splitlines() if "--out " in line]
    assert " -o " in line
    assert "--output" not in text
    assert "--methods" not in text


def test_a_place_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InputError, match="may not write in"):
        checks.writable(tmp_path / "a" / "b.csv")
    (tmp_path / "old.csv").write_text("")
    with pytest.raises(InputError, match="may not change it"):
        checks.writable(tmp_path / "old.csv")
