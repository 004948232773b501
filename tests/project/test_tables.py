"""Figures in tables come from commands: every such table names its own, and those that can be made again are equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import readme
from benchmarks.site import tables
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "RESULTS.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_of_figures_name_the_command_that_made_them(page: Path) -> None:
    unmarked = [found.line for found in tables.tables_of_figures(page.read_text("utf8")) if not found.mark]
    assert unmarked == [], "put <!-- made by: COMMAND --> before the table, or <!-- not measured: WHAT IT IS -->"


def test_a_table_without_a_mark_is_found() -> None:
    table = "| a | b |\n|---|---|\n| x | 1.5 |\n"
    marked = f"<!-- made by: python -m benchmarks -->\n\n{table}"
    assert [found.mark for found in tables.tables_of_figures(marked)] == ["made by: python -m benchmarks"]
    assert [found.line for found in tables.tables_of_figures(f"{marked}\n{table}") if not found.mark] == [7]
    assert [found.mark for found in tables.tables_of_figures(f"{marked}\n{table}\n<!-- end -->\n")] == 2 * [
        "made by: python -m benchmarks"
    ]
    assert tables.tables_of_figures(table.replace("1.5", "`1.5`")) == []
    assert tables.tables_of_figures(f"```\n{table}```\n") == []


def test_modules_of_the_commands_exist() -> None:
    marks = {found.mark for page in PAGES for found in tables.tables_of_figures(page.read_text("utf8"))}
    modules = {module for mark in marks for module in re.findall(r"python -m ([\w.]+)", mark)}
    assert len(modules) >= 8
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def test_the_readme_is_what_its_command_writes() -> None:
    page = readme.PAGE.read_text("utf8")
    assert all(readme.block(name).search(page) for name in readme.BLOCKS)
    assert page == readme.filled(page), "run python -m benchmarks.readme"


@pytest.mark.parametrize("name", tables.BLOCKS)
def test_computed_tables_are_what_their_command_writes(name: str) -> None:
    address, made = tables.BLOCKS[name]
    found = tables.block(name).search((tables.DOCS / address).read_text("utf8"))
    assert found is not None
    assert found[2] == made(), "run python -m benchmarks.site.tables"


def test_ratios_of_the_page_about_speed_are_measured_ones() -> None:
    """docs/speed.md repeats medians of benchmarks/RESULTS.md, each under the same name and network."""
    measured: dict[tuple[str, str], set[str]] = {}
    for line in (ROOT / "benchmarks" / "RESULTS.md").read_text("utf8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) > 4:
            measured.setdefault((_key(cells[1]), cells[2]), set()).add(cells[3])
    page = (ROOT / "docs" / "speed.md").read_text("utf8")
    lines = page[page.index("| | cifar10_densenet101") :].split("\n\n")[0].splitlines()
    header = [cell.strip() for cell in lines[0].strip("|").split("|")]
    compared = 0
    for line in lines[2:]:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        for network, cell in zip(header[1:], cells, strict=True):
            assert cell in measured[_key(name), network], (name, network)
            compared += 1
    assert compared >= 12


def _key(name: str) -> str:
    """The same quantity is named with its parts in another order on the two pages."""
    return " ".join(sorted(re.findall(r"[\w']+", name)))
