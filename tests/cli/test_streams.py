"""Standard output that is closed, cut off by a reader, or knows few characters."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adascale.cli.streams import ReaderLeft, safe_streams


def test_a_reader_that_leaves_is_no_error() -> None:
    for arguments in ("methods", "methods --json"):
        process = subprocess.Popen(
            [sys.executable, "-m", "adascale", *arguments.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.close()  # before anything is written
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()


def closed() -> None:
    for number in (0, 1, 2):
        os.close(number)


def test_closed_streams(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "adascale", "methods"]
    assert subprocess.run(program, preexec_fn=closed, cwd=tmp_path, check=False).returncode == 0
    code = """
from adascale.cli.streams import safe_streams
with safe_streams():
    file = open("told", "w")
    file.write(str(file.fileno()))
"""
    program = [sys.executable, "-c", code]
    assert subprocess.run(program, preexec_fn=closed, cwd=tmp_path, check=False).returncode == 0
    assert int((tmp_path / "told").read_text()) > 2  # else whatever is printed would go into that file


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", b"\\xe4\\udcff"), ("latin-1", b"\xe4\\udcff"), ("utf-8", "ä".encode() + b"\xff")]
)
def test_every_name_can_be_printed(encoding: str, shown: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    with safe_streams():
        print("ä\udcff", end="")
    assert raw.getvalue() == shown


def test_it_is_told_as_one_kind_of_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Left())
    with pytest.raises(ReaderLeft), safe_streams():
        print("a row")
