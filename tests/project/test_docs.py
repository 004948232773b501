"""Documentation that names modules, methods or commands is checked against them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import adascale
from tests.conftest import ROOT

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
