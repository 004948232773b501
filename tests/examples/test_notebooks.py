"""The notebooks run from the first cell to the last, and are stored without outputs."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
# What a reader sees of them beside printed lines: pictures with verdicts and sortable tables, and figures.
SHOWN = {"reject-unknowns": ("text/html", "image/png"), "compare-methods": ("text/html",)}


def test_there_are_five_without_outputs() -> None:
    assert len(NOTEBOOKS) >= 5
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert notebook.cells[0].source.startswith("# "), path.name
        assert not any(cell.outputs or cell.execution_count for cell in code), path.name


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    data = [out["data"] for cell in notebook.cells for out in cell.get("outputs", []) if "data" in out]
    for kind in SHOWN.get(path.stem, ()):
        assert any(kind in one for one in data), kind
    printed = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))
    assert len(printed.splitlines()) >= 3
