"""Documentation that names modules, methods or commands is checked against them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import adascale
from adascale.bench import tables
from adascale.decision import folders
from adascale.storage.tensors import load_tensors
from tests.conftest import ROOT, SmallNet, images, seeded

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_module_names_can_be_imported(page: Path) -> None:
    text = page.read_text("utf8")
    names = set(re.findall(r"`(adascale(?:\.[A-Za-z_]\w*)+)", text))
    for module, listed in re.findall(r"^from (adascale[\w.]*) import (.*)$", text, re.M):
        names |= {f"{module}.{name.strip()}" for name in listed.split(",")}
    for name in sorted(names):
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ImportError:
            assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_names_listed_for_a_module_exist() -> None:
    """In docs/api.md a row that starts with a module lists names of it, each in backticks at the start of an entry."""
    rows = re.findall(r"^\| `(adascale\.[\w.]+)` \| (.*) \|$", (ROOT / "docs" / "api.md").read_text("utf8"), re.M)
    assert len(rows) > 15
    for name, text in rows:
        module = importlib.import_module(name)
        listed = re.findall(r"`([A-Za-z_]\w*)[^`]*`", text.split(":")[0] if ": " in text else text)
        assert [entry for entry in listed if not hasattr(module, entry)] == [], name


def test_public_names_are_documented() -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf8")
    assert [name for name in adascale.__all__ if f"`{name}`" not in page] == []


def test_the_rooms_on_the_map_are_those_of_the_package() -> None:
    rooms = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "architecture.md").read_text("utf8"), re.M)
    assert set(rooms) == {path.parent.name for path in (ROOT / "src" / "adascale").glob("*/__init__.py")}


def test_every_file_format_is_on_its_page() -> None:
    """docs/files.md names the format of every file, the columns of rows and of results, and a detector's record."""
    page = (ROOT / "docs" / "files.md").read_text("utf8")
    sources = "\n".join(path.read_text("utf8") for path in (ROOT / "src" / "adascale").rglob("*.py"))
    formats = set(re.findall(r'(?:"format": |KIND = |FILE = |FORMAT_VERSION = )"(adascale-[a-z]+)"', sources))
    assert len(formats) >= 10
    columns = {"image", *folders.VERDICT_COLUMNS, *folders.DECISION_COLUMNS, "prediction", "class", "error"}
    columns |= {"discovery", "model", "method", *tables._COLUMNS}
    assert [name for name in sorted(formats | columns) if f"`{name}`" not in page] == []


def test_the_record_of_a_detector_file_is_on_the_page_of_files(tmp_path: Path) -> None:
    detector = adascale.OODDetector(seeded(SmallNet), "msp", classes=list("abcde")).fit(images(40))
    detector.save(tmp_path / "detector.safetensors")
    found = load_tensors(tmp_path / "detector.safetensors", "adascale-detector")
    page = (ROOT / "docs" / "files.md").read_text("utf8")
    names = [*found.record, *found.record["calibration"], *found.record["fitted"]]
    assert [name for name in names if f"`{name}`" not in page] == []
    assert {name for name in found.tensors if name.startswith("cal")} == {"calibration.scores", "calibration.classes"}


def test_every_extra_is_on_the_first_page() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf8").split("[project.optional-dependencies]")[1].split("\n[")[0]
    extras = re.findall(r"^([\w-]+) = \[", text, re.M)
    page = (ROOT / "docs" / "index.md").read_text("utf8").split("Extras (")[1]
    assert len(extras) > 10
    assert [name for name in extras if f"`{name}`" not in page] == []
