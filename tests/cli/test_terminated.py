"""SIGTERM ends a command in one line, with exit code 143, and what was computed is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from adascale.cli.console import STOPS, terminable, undisturbed
from adascale.monitoring import Monitor
from tests.shell import fit, inside, rows, trusting

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without asking it")


def started(place: Path, *arguments: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "adascale", *trusting(arguments)]
    environment = {**os.environ, "SLOW": "0.1"}
    return subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True, env=environment)


def test_a_terminated_run_says_so_and_resumes(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = fit(place, monkeypatch, "--method", "msp")
    command = ["score", place / "id", "-d", detector, "-o", place / "s.csv", "--batch-size", 2]
    run, journal = started(place, *command), place / "s.csv.part"
    while run.poll() is None and not journal.exists():
        time.sleep(0.01)
    run.send_signal(signal.SIGTERM)
    _, told = run.communicate(timeout=60)
    assert run.returncode == 143
    assert told.splitlines()[-1] == "adascale: terminated; the same command resumes where it stopped."
    assert "Traceback" not in told
    assert not (place / "s.csv").exists()
    assert not (place / ".s.csv.lock").exists()
    capsys.readouterr()
    assert inside(monkeypatch, *command) == 0
    assert "resuming after" in capsys.readouterr().err
    assert len(rows(place / "s.csv")) == 30


def test_a_command_that_keeps_nothing_ends_in_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from adascale.cli import describe

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(describe, "env", lambda _: signal.raise_signal(signal.SIGTERM))
    assert inside(monkeypatch, "env") == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_is_not_asked_to_wait() -> None:
    with terminable():
        with pytest.raises(STOPS):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_must_not_be_halved_is_completed_first(number: signal.Signals) -> None:
    done = []

    def work() -> None:
        with undisturbed():
            signal.raise_signal(number)
            done.append("the rest")

    with terminable(), pytest.raises(STOPS):
        work()
    assert done == ["the rest"]


def test_a_monitor_that_is_stopped_within_a_row_counts_it_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = fit(place, monkeypatch, "--method", "msp")
    assert inside(monkeypatch, "score", place / "id", "-d", detector, "-o", place / "s.csv") == 0

    def summary(state: Path) -> Any:
        arguments = ["monitor", place / "s.csv", "-d", detector, "--state", state, "--json"]
        code = inside(monkeypatch, *arguments)
        return code, Monitor.load(state).summary()

    whole, update, seen = summary(place / "whole")[1], Monitor.update, []

    def stopped(self: Monitor, *given: Any) -> Any:
        found = update(self, *given)
        seen.append(given)
        if len(seen) == 7:
            signal.raise_signal(signal.SIGTERM)  # the row is judged, but not yet counted
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Monitor, "update", stopped)
        code, part = summary(place / "cut")
    assert (code, part["images"]) == (143, 7)
    code, resumed = summary(place / "cut")
    assert code == 0
    assert json.dumps(resumed) == json.dumps(whole)
