"""Long jobs from the shell: several methods at once, broken input, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from adascale import detectors
from adascale.storage.rows import Journal
from tests.counting import counted
from tests.shell import NETWORK, fit, inside, rows, run, trusting


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_several_methods_share_one_extraction(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--method", "adascale_a", "--method", "scale", "--method", "ebo", "--set", "scale.percentile=80"]
    base = ["fit", place / "id", "--model", f"{place / 'nets.py'}:Net"]
    monkeypatch.setenv("CALLS", str(place / "calls"))
    assert inside(monkeypatch, *base, "-o", place / "dets", *chosen) == 0
    # two images locate the head and show what can be folded, one alone must give the same, the 30 images take two
    # passes, the files share one probe
    assert (place / "calls").read_text().split() == ["2", "2", "2", "1", "30", "30", "2"]
    files = sorted(path.name for path in (place / "dets").iterdir())
    assert files == ["adascale_a.safetensors", "ebo.safetensors", "scale.safetensors"]
    (place / "calls").unlink()
    assert inside(monkeypatch, "score", place / "id", "-d", place / "dets", "-o", place / "s.csv") == 0
    assert (place / "calls").read_text().split() == ["2"] * 3 + ["1", "2", "30", "30"]  # it is checked once
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
def test_fit_and_score_hash_the_network_once_and_read_each_detector_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("ebo", "mls", "scale")
    fitting = counted(monkeypatch)
    methods = [part for name in names for part in ("--method", name)]
    model = f"{place / 'nets.py'}:Net"
    assert inside(monkeypatch, "fit", place / "id", "--model", model, "-o", place / "dets", *methods, "--json") == 0
    assert [record["method"] for record in json.loads(capsys.readouterr().out)] == list(names)
    assert fitting["fingerprint"] == 1
    assert [fitting[f"{name}.safetensors"] for name in names] == [0, 0, 0]  # the record is not read back
    save_file({"a": torch.zeros(2)}, place / "dets" / "weights.safetensors")  # it belongs to something else
    scoring = counted(monkeypatch)
    assert inside(monkeypatch, "score", place / "id", "-d", place / "dets", "-o", place / "s.csv") == 0
    assert scoring["fingerprint"] == 1
    assert [scoring[f"{name}.safetensors"] for name in names] == [1, 1, 1]
    assert scoring["checksum"] == 3
    damaged = place / "dets" / "mls.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert inside(monkeypatch, "score", place / "id", "-d", place / "dets") == 2
    assert "mls.safetensors is damaged" in capsys.readouterr().err


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
    lacking = {"mc_dropout", "rankfeat", "gaia_z", "gaia_a", "combood"}  # this network has no such layers
    assert fitted >= {cls.name for cls in detectors.ALL} - {"she", "openmax", "temp_scale"} - lacking
    assert not lacking & fitted
    assert "left out mc_dropout: Net has no dropout module with p > 0" in errors
    assert "left out gaia_z: Net has no norms that can be found" in errors
    assert "she" in fitted or "left out she: she needs a correctly classified" in errors
    assert "openmax" in fitted or "left out openmax: openmax needs correctly classified" in errors
    assert "left out temp_scale: temp_scale needs the labels of the ID images" in errors
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


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_two_settings_of_one_method_have_their_own_columns(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["fit", place / "id", "--model", f"{place / 'nets.py'}:Net", "--method", "scale"]
    for p in (60, 85):
        assert inside(monkeypatch, *base, "-o", place / f"s{p}.safetensors", "--set", f"percentile={p}") == 0
        assert (
            inside(monkeypatch, "score", place / "id", "-d", place / f"s{p}.safetensors", "-o", place / f"{p}.csv") == 0
        )
    both = ["-d", place / "s60.safetensors", "-d", place / "s85.safetensors", "-d", place / "s60.safetensors"]
    assert inside(monkeypatch, "score", place / "id", *both, "-o", place / "both.csv") == 0
    table = rows(place / "both.csv")
    for p in (60, 85):
        assert [row[f"s{p}.score"] for row in table] == [row["score"] for row in rows(place / f"{p}.csv")]
    # a folder with other files in it is not mixed with a new run
    capsys.readouterr()
    assert inside(monkeypatch, *base, "--method", "lts", "-o", place) == 2
    assert "holds other files (s60, s85)" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_typed_settings(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["fit", place / "id", "--model", f"{place / 'nets.py'}:Net", "--json"]
    for method, setting, expected in (
        ("vim", "dim=8", {"dim": 8}),
        ("odin", "std=0.2,0.3,0.4", {"std": [0.2, 0.3, 0.4]}),
        ("nci", "norm_weight=0.01", {"norm_weight": 0.01}),
        ("scale", "relu=true", {"relu": True}),
    ):
        capsys.readouterr()
        assert inside(monkeypatch, *base, "--method", method, "--set", setting, "-o", place / "x.st") == 0
        parameters = json.loads(capsys.readouterr().out)["parameters"]
        assert {name: parameters[name] for name in expected} == expected
    for method, setting in (("knn", "k=2.5"), ("vim", "dim=many"), ("nci", "norm_weight=nan")):
        assert inside(monkeypatch, *base, "--method", method, "--set", setting, "-o", place / "x.st") == 2


def test_detectors_of_different_heads_are_not_mixed(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "two.py").write_text(two_heads())
    for head, method in (("fc", "ebo"), ("fc2", "mls")):
        base = ["fit", place / "id", "--model", f"{place / 'two.py'}:Net", "--head", head, "--method", method]
        assert inside(monkeypatch, *base, "-o", place / f"{head}.safetensors") == 0
    capsys.readouterr()
    files = ["-d", place / "fc.safetensors", "-d", place / "fc2.safetensors"]
    assert inside(monkeypatch, "score", place / "id", *files) == 2
    assert "is used with the head 'fc'" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_corrected_labels_are_seen(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 20, 20, 3), dtype=np.uint8)
    base = ["fit", place / "id", "--model", f"{place / 'nets.py'}:Net", "--method", "mds", "-o", place / "m.st"]
    np.savez(place / "train.npz", images=images, labels=np.arange(40) % 4 + 1)
    assert inside(monkeypatch, *base, "--train", place / "train.npz") == 2
    assert "must be 0 to 3" in capsys.readouterr().err
    np.savez(place / "train.npz", images=images, labels=np.arange(40) % 4)
    assert inside(monkeypatch, *base, "--train", place / "train.npz") == 0


def two_heads() -> str:
    """The network with a second head, both returned."""
    two = NETWORK.replace("self.fc = nn.Linear(128, 4)", "self.fc = nn.Linear(128, 4); self.fc2 = nn.Linear(128, 4)")
    return two.replace("return self.fc(", "a = torch.relu(self.conv(x)).mean((2, 3)); return self.fc2(a), self.fc(")


def test_another_head_does_not_resume_from_the_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "two.py").write_text(two_heads())
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")  # else the date of fitting differs
    base = ["fit", place / "id", "--model", f"{place / 'two.py'}:Net", "-o", place / "h.st"]
    monkeypatch.setattr("adascale.cli.fit.remove_folder", lambda _: None)  # the parts stay
    assert inside(monkeypatch, *base, "--head", "fc") == 0
    assert inside(monkeypatch, *base, "--head", "fc2") == 0
    resumed = (place / "h.st").read_bytes()
    assert inside(monkeypatch, *base[:-1], place / "fresh.st", "--head", "fc2") == 0
    assert (place / "fresh.st").read_bytes() == resumed


@pytest.mark.parametrize("killed", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("verb", ["fit", "score"])
def test_an_interrupted_run_goes_on_where_it_stopped(
    place: Path, monkeypatch: pytest.MonkeyPatch, verb: str, killed: signal.Signals
) -> None:
    detector = fit(place, monkeypatch)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")  # else the date of fitting differs
    if verb == "fit":
        arguments = ["fit", "id", "--model", "nets.py:Net", "-o", "again.safetensors", "--batch-size", "3"]
        partial, output = place / "again.safetensors.parts", place / "again.safetensors"
    else:
        arguments = ["score", "id", "-d", str(detector), "-o", "s.csv", "--batch-size", "3"]
        partial, output = place / "s.csv.part", place / "s.csv"
    command = [sys.executable, "-m", "adascale", *trusting(arguments)]
    slow = {**os.environ, "SLOW": "0.3"}
    process = subprocess.Popen(
        command,
        cwd=place,
        env=slow,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _progressed(partial):
        time.sleep(0.05)
    process.send_signal(killed)
    _, errors = process.communicate(timeout=60)
    assert _progressed(partial)
    if killed == signal.SIGINT:
        assert process.returncode == 130
        assert "resumes where it stopped" in errors
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
        return len(list(partial.glob("*/*.safetensors"))) >= 2
    return partial.is_file() and len(partial.read_text().splitlines()) > 3


def test_stale_partial_results_are_not_used(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "s.csv", key="old")
    journal.append([{"image": "a"}])
    assert Journal(tmp_path / "s.csv", key="old").done() == 1
    with open(tmp_path / "s.csv.part", "a") as file:
        file.write('{"image": "cut o')
    assert Journal(tmp_path / "s.csv", key="old").done() == 1  # the torn line is dropped
    assert Journal(tmp_path / "s.csv", key="new").done() == 0


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_the_evidence_of_every_member_is_a_column_on_request(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = f"{place / 'nets.py'}:Net"
    assert inside(monkeypatch, "fit", place / "id", "--model", model, "-o", place / "d.st", "--method", "combined") == 0
    assert "the evidence of adascale_l, fdbd, gen" in capsys.readouterr().out
    assert inside(monkeypatch, "score", place / "id", "-d", place / "d.st", "--evidence", "-o", place / "s.csv") == 0
    for row in rows(place / "s.csv"):
        added = [float(value) for name, value in row.items() if name.startswith("evidence.")]
        assert sum(added) == pytest.approx(float(row["score"]), rel=1e-9)
    assert inside(monkeypatch, "score", place / "id", "-d", place / "d.st", "--evidence", "--decide") == 2
    assert "--evidence" in capsys.readouterr().err
    assert inside(monkeypatch, "fit", place / "id", "--model", model, "-o", place / "e.st", "--method", "ebo") == 0
    assert inside(monkeypatch, "score", place / "id", "-d", place / "e.st", "--evidence") == 2
    assert "--evidence is for methods that combine others" in capsys.readouterr().err
