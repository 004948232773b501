"""The campaign runs, fails where something is wrong, and keeps the input."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign import __main__ as campaign
from tests.campaign.tries import Tries


def test_a_short_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["campaign", "--minutes", "0.03", "--only", "images,files", "--keep", str(tmp_path / "kept")]
    monkeypatch.setattr("sys.argv", arguments)
    assert campaign.main() == 0
    parts = [line.split("|") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [part[1].strip() for part in parts] == ["images", "files"]
    assert all(int(part[2]) > 0 == int(part[3]) for part in parts)


def test_a_failure_is_counted_and_its_input_kept(tmp_path: Path) -> None:
    tries = Tries("images", 3, 10.0, 2, tmp_path)
    draws = []
    for draw in tries.each():
        draws.append(draw.random())
        tries.attempt(lambda: str(1 / 0) if tries.count else None, b"given", ".image")
    assert (tries.count, len(tries.failures)) == (2, 1)
    assert (tmp_path / "images-3-1.image").read_bytes() == b"given"
    again = Tries("images", 3, 10.0, 2, tmp_path)
    assert [draw.random() for draw in again.each()] == draws
