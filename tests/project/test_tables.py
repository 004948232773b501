"""Figures in tables come from commands: every such table names its own, and those that can be made again are equal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import docs, paper, readme
from benchmarks.kept_tables import PAGES
from benchmarks.site import tables
from tests.conftest import ROOT


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


# Tables whose results were not kept when they were made: they name the commit and the day, and the page says so.
_MADE = re.compile(r"\((\w{7,}), (20\d\d-\d\d-\d\d)\) -->")


@pytest.mark.parametrize("page", paper.NETWORKS)
def test_tables_of_studies_are_what_the_kept_results_give(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text("utf8")
    assert text == paper.filled(text, page), f"run python -m benchmarks.paper docs/{page}.md"
    undated = [study for study, commit, _, _ in paper.PLACE.findall(text) if not commit]
    assert [study for study in undated if not paper.kept(page, study)] == []
    dated = [match[0].splitlines()[0] for match in paper.PLACE.finditer(text) if match[2]]
    assert all(_MADE.search(mark) for mark in dated)
    assert not dated or "were not kept" in text


def test_tables_of_benchmarks_are_what_the_kept_results_give() -> None:
    text = docs.PAGE.read_text("utf8")
    sections = list(docs.PLACE.finditer(text))
    assert len(sections) == 3
    assert text == docs.filled(text), "run python -m benchmarks.docs"
    for one in sections:
        assert one[3] or (docs.KEPT / f"{one[1]}.json").is_file(), one[1]
    assert not any(one[3] for one in sections) or "were not kept" in text


def test_a_changed_figure_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is one of figures: a digit that no kept result has makes another page."""
    cells = {"a.fpr95": {"measured": 12.345678}, "a.auroc": {"measured": 90.0}}
    columns = [{"key": key, "title": key, "group": "Near-OOD"} for key in cells]
    block = {"title": "", "columns": columns, "lines": [{"label": "mls", "cells": cells}], "charts": []}
    result: dict[str, Any] = {
        "study": "main",
        "title": "",
        "source": "",
        "question": "",
        "suite": "s",
        "blocks": [block],
    }
    result |= {"format": "adascale-study", "format_version": 1, "about": {"networks": {"net": {}}, "sets": {}}}
    (tmp_path / "main.json").write_text(json.dumps(result))
    monkeypatch.setattr(paper, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(paper, "NETWORKS", {"page": ("net",)})
    paper.keep("page", tmp_path)
    text = paper.filled("<!-- study main (2dd5fde, 2026-11-16) -->\nold\n<!-- end -->\n", "page")
    assert "<!-- study main -->" in text
    assert "12.35 / 90.00" in text
    assert paper.filled(text, "page") == text
    assert paper.filled(text.replace("12.35", "12.36"), "page") == text
