"""What would be published: the wheel has everything it needs, and the version is the same everywhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import adascale
from tests.conftest import ROOT


def test_one_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text("utf8")
    (first, *_) = re.findall(r"^## (\S+) \((\d{4}-\d\d-\d\d|unreleased)\)$", changes, re.M)
    assert first[0] == adascale.__version__
    assert f"version: {adascale.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf8")


@pytest.mark.slow
def test_the_wheel_works_outside_of_the_repository(tmp_path: Path) -> None:
    built = [] if importlib.util.find_spec("hatchling") is None else ["--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *built, "-w", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and not built:
        pytest.skip("hatchling is not installed and cannot be fetched")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    kept = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert {name for name in kept if "__pycache__" not in name} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    use = [sys.executable, str(ROOT / "tests" / "project" / "released.py"), str(tmp_path / "use")]
    done = subprocess.run(use, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"adascale {adascale.__version__} from {tmp_path / 'installed'}" in done.stdout
