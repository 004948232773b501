"""Runs of `adascale bench` in this process, and what they wrote."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from adascale.bench.columns import Kind
from adascale.bench.results import Run
from tests.made_up_run import METHODS as MADE_UP_METHODS
from tests.made_up_run import made_up_run
from tests.shell import inside

FEW: dict[str, Kind] = {"digits": "id", "shifted digits": "shifted", "letters": "near", "noise": "far"}
METHODS = ["--method", "adascale_a,scale,msp", "--tune", "none"]


def bench(place: Path, monkeypatch: pytest.MonkeyPatch, out: str, *extra: Any, suite: str = "suite.toml") -> list[int]:
    """Run it; the batches that went through the network."""
    calls = place / "calls"
    calls.write_text("")
    monkeypatch.setenv("CALLS", str(calls))
    arguments = ["bench", place / suite, "--model", f"{place / 'nets.py'}:Net", "--out", place / out, "--no-report"]
    assert inside(monkeypatch, *arguments, *extra) == 0
    return [int(line) for line in calls.read_text().split()]


def table(place: Path, out: str) -> list[dict[str, str]]:
    with open(place / out / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def networks(place: Path, out: str) -> dict[str, Any]:
    """What results.json says about the network."""
    found: dict[str, Any] = json.loads((place / out / "results.json").read_text())["reproduce"]["networks"]["Net"]
    return found


def small(**options: object) -> Run:
    return made_up_run(methods=MADE_UP_METHODS[:2], sets=FEW, images=40, **options)  # type: ignore[arg-type]
