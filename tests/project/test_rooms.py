"""Rooms import only from the rooms below them. A new file in a room needs no entry here."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCE = ROOT / "src" / "adascale"
_NETWORK = "core maths storage images"
_EXPORT = f"{_NETWORK} network detectors extraction"
_DECISION = f"{_EXPORT} export"
_BENCH = f"{_DECISION} decision report"
_CLI = f"{_BENCH} bench training paper testing monitoring service showing cluster"
BELOW = {
    "core": "",
    "maths": "core",
    "storage": "core",
    "images": "core maths storage",
    "network": _NETWORK,
    "detectors": "core maths",
    "extraction": f"{_NETWORK} network",
    "export": _EXPORT,
    "decision": _DECISION,
    "report": "core maths storage",
    "monitoring": "core maths storage report",
    "service": f"{_DECISION} decision monitoring",
    "showing": _BENCH,
    "bench": _BENCH,
    "training": f"{_NETWORK} network",
    "cluster": f"{_BENCH} bench",
    "interop": f"{_BENCH} bench",
    "paper": f"{_BENCH} bench training",
    "cli": _CLI,
}


def imported(path: Path) -> Iterator[str]:
    """The rooms (or files of the top) that a file imports, in any form of import."""
    package = ".".join(("adascale", *path.relative_to(SOURCE).parts[:-1]))
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            home = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names = [f"{home}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("adascale."))


@pytest.mark.parametrize(
    "room", sorted({path.name for path in SOURCE.iterdir() if path.joinpath("__init__.py").exists()})
)
def test_arrows_between_rooms_point_down(room: str) -> None:
    allowed = {room, *BELOW[room].split()}
    wrong = {str(path.relative_to(SOURCE)): set(imported(path)) - allowed for path in (SOURCE / room).rglob("*.py")}
    assert {path: rooms for path, rooms in wrong.items() if rooms} == {}


def test_every_form_of_import_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.project.test_rooms.SOURCE", tmp_path)
    file = tmp_path / "maths" / "x.py"
    file.parent.mkdir()
    file.write_text(
        "import adascale.bench.run\nfrom adascale import cli\nfrom ..paper import y\nfrom . import z\nimport torch"
    )
    assert set(imported(file)) == {"bench", "cli", "paper", "maths"}
