"""Calls that need no network answer without importing PyTorch; mistakes are told in the words of the shell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from adascale.cli.main import in_flags
from tests.shell import inside, run

METHOD = '''
from dataclasses import dataclass
from adascale import Detector

@dataclass
class Mine(Detector):
    """S = -log sum exp(z)"""
    name, summary, fits_on = "mine", "the energy", "nothing"

    def _score(self, outputs):
        return SIGN * outputs.logits.double().logsumexp(1)
'''


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("fit --help", 0),
        ("bench --help", 0),
        ("train --help", 0),
        ("methods", 0),
        ("fti", 2),
        ("fit . --model digits -o x --method scal", 2),
        ("fit nowhere --model digits -o x", 2),
        ("fit . --model digits -o x --classes nowhere.txt", 2),
        ("score . -d nowhere.safetensors", 2),
        ("inspect nowhere.safetensors", 2),
        ("bench digist --no-report", 2),
        ("bench digits --method scal", 2),
        ("bench --modle x", 2),
        ("study lamda", 2),
        ("study k2 --preset imagenet/resnet-49", 2),
        ("fit . --model digits -o x --alpha 5", 2),
        ("fit . --model torchvison:resnet18 -o x", 2),
        ("fit . --model digits -o x --std 0", 2),
        ("score . -d . -o x.xlsx", 2),
        ("serve --help", 0),
        ("serve", 2),
        ("serve nowhere.safetensors", 2),
        ("serve a=nowhere.safetensors", 2),
        ("serve --demo --queue 0", 2),
        ("serve --demo --max-images 300", 2),
        ("serve --demo --token-file nowhere", 2),
        ("cache", 0),
        ("cache size --json", 0),
        ("cache clean", 2),
        ("cache clean --older-than 3", 2),
        ("tune --method nowhere.py:Mine", 2),
        ("compare nowhere nothing", 2),
        ("train --model adascale:resnet-18 --data nowhere", 2),
        ("train --model adascale:resnet-18 --data . --init nowhere.pth", 2),
        ("check nowhere.py:Mine", 2),
        ("check scal", 2),
        ("methods scal", 2),
        ("fit . --model digits -o x --confidence 95", 2),
        ("score . -d . --alpha 0", 2),
        ("score . -d . --confidence 0.2", 2),
        ("score . -d . --fdr 10", 2),
        ("score . -d . --fdr 0.1 --decide", 2),
        ("score . -d . --confidence 0.9 --no-confidence", 2),
    ],
)
def test_torch_is_not_imported(arguments: str, code: int, tmp_path: Path) -> None:
    program = f"""
import sys
from adascale.cli.main import main
sys.argv = ["adascale", *{arguments.split()!r}]
try:
    main()
except SystemExit as error:
    print("torch" in sys.modules, error.code or 0)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"False {code}"
    assert (code == 2) == bool(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("fitt", "No such command 'fitt'. Did you mean 'fit'? See adascale --help."),
        ("fit . --model digits", "Missing option '--out' / '-o'. See adascale fit --help."),
        ("fit . --model digits -o x --batch-size many", "Invalid value for '--batch-size'"),
        ("fit . --modle digits -o x", "No such option: --modle"),
        ("fit . -o x --model", "Option '--model' requires an argument."),
    ],
)
def test_mistakes_in_the_call_are_told_in_one_line(
    arguments: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inside(monkeypatch, *arguments.split()) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith(f"adascale: {told}")


def test_help_is_printed_as_ever(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in (([], 2), (["--help"], 0), (["fit", "--help"], 0)):
        assert inside(monkeypatch, *arguments) == code
        captured = capsys.readouterr()
        assert ("Usage: adascale" in captured.out, captured.err) == (True, "")


def test_messages_of_the_library_are_put_in_the_words_of_the_shell() -> None:
    assert in_flags("batch_size=0; it must be above 0.") == "--batch-size 0; it must be above 0."
    assert in_flags("Pass head='fc' or compiled=True.") == "Pass --head fc or --compile."
    assert in_flags("Pass method=detectors.get('a.py:B').") == "Pass --method a.py:B."
    assert in_flags("Pass load(..., method=) for a class") == "Pass --method for a class"
    assert in_flags("confidence=95; fdr=2 and alpha=5.") == "--confidence 95; --fdr 2 and --alpha 5."
    assert in_flags("p_max=101 is above 100") == "p_max=101 is above 100"
    assert in_flags("use --set scale.percentile=80, a.alpha=3") == "use --set scale.percentile=80, a.alpha=3"


def test_env_has_what_a_bug_report_needs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert inside(monkeypatch, "env", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["torch"] == torch.__version__
    assert inside(monkeypatch, "env") == 0
    text = capsys.readouterr().out
    assert all(name in text for section in found.values() for name in section)
    assert len(text.splitlines()) <= 45


def test_check_names_every_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.py").write_text(METHOD.replace("SIGN", "-1"))
    (tmp_path / "bad.py").write_text(METHOD.replace("SIGN", "1"))
    assert inside(monkeypatch, "check", f"{tmp_path / 'good.py'}:Mine") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 10
    assert all(line.startswith("ok ") for line in lines)
    assert inside(monkeypatch, "check", f"{tmp_path / 'bad.py'}:Mine") == 2
    captured = capsys.readouterr()
    (failed,) = [line for line in captured.out.splitlines() if not line.startswith("ok ")]
    assert failed.startswith("failed  higher means ood")
    assert captured.err.strip() == f"adascale: Mine fails 1 of {len(lines)} checks."


def test_a_method_in_a_file_is_fitted_scored_and_compared(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "mine.py").write_text(METHOD.replace("SIGN", "-1"))
    mine, model = f"{place / 'mine.py'}:Mine", f"{place / 'nets.py'}:Net"
    (place / "near").mkdir()
    (place / "id" / "00.png").rename(place / "near" / "00.png")
    own = ["--id", place / "id", "--near", place / "near", "--model", model, "--no-report"]
    assert inside(monkeypatch, "bench", *own, "--method", f"{mine},ebo", "--out", place / "o", "--json") == 0
    assert inside(monkeypatch, "tune", "--id", place / "id", "--model", model, "--method", mine) == 2
    assert "mine" in capsys.readouterr().err
    fitted = run(place, "fit", "id", "--model", "nets.py:Net", "--method", "mine.py:Mine", "-o", "d.st")
    assert (fitted.returncode, "Mine" in fitted.stdout) == (0, True), fitted.stderr
    refused = run(place, "score", "id", "-d", "d.st")
    assert (refused.returncode, f"--method {place / 'mine.py'}:Mine" in refused.stderr) == (2, True)
    assert run(place, "score", "id", "-d", "d.st", "--method", "mine.py:Mine").stdout.count("\n") == 30
