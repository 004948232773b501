"""The command line run on a folder with a network and images (the fixture ``place``)."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adascale.cli import main as cli

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


def trusting(args: Sequence[Any]) -> list[str]:
    """The arguments with ``--trust`` where a detector file names the network: that of a test is the test's own."""
    texts = list(map(str, args))
    named = bool(texts) and texts[0] in ("score", "explain", "export", "recalibrate") and "--model" not in texts
    return [*texts, "--trust"] if named else texts


def run(place: Path, *args: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "adascale", *trusting(args)],
        cwd=place,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def inside(monkeypatch: pytest.MonkeyPatch, *args: Any) -> int:
    """The same in this process, for speed."""
    monkeypatch.setattr(sys, "argv", ["adascale", *trusting(args)])
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
