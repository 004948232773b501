"""Measured tables of the pages are those that are kept, cell by cell."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import kept_tables
from benchmarks.generalise.page import SECTIONS
from benchmarks.kept_tables import KEPT, PAGES, Table, everything, measured, unprinted

_FIGURE = re.compile(r"\d+\.\d+")
_HEAD = ["what", "median", "turns"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_those_that_are_kept(page: Path) -> None:
    assert [difference for table in measured(page) for difference in table.differences()] == []


def test_what_is_kept_is_on_a_page() -> None:
    assert sorted(path.stem for path in KEPT.iterdir()) == sorted(table.name for table in everything())


def test_a_change_of_any_figure_on_a_page_is_found() -> None:
    """In every table that another test does not compute again, whichever row the figure stands in."""
    changed = 0
    for page in {page for page in PAGES if measured(page)}:
        text = page.read_text("utf8")
        lines = text.splitlines()
        for number, line in enumerate(lines):
            other = _FIGURE.sub(lambda figure: f"{figure[0][:-1]}{(int(figure[0][-1]) + 1) % 10}", line, count=1)
            there = [*lines[:number], other, *lines[number + 1 :]]
            if line.startswith("|") and other != line and _is_measured(page, line):
                found = [one for table in measured(page, "\n".join(there)) for one in table.differences()]
                assert len(found) == 1, line
                changed += 1
    assert changed > 300


def _is_measured(page: Path, line: str) -> bool:
    (cells,) = kept_tables.rows_of([line])
    return any(cells in table.rows for table in measured(page))


def test_a_table_of_which_nothing_is_kept_is_found() -> None:
    page = kept_tables.ROOT / "docs" / "speed.md"
    text = "# One more\n\n<!-- made by: python -m benchmarks -->\n\n| a | b |\n|---|---|\n| x | 1.5 |\n"
    assert [table.differences()[0].split(":")[0] for table in measured(page, text)] == ["speed.one-more"]
    assert measured(page, text.replace("made by: python -m benchmarks", "not measured: settings")) == []
    assert len(measured(page, text.replace("made by: python -m benchmarks", "study main"))) == 1  # no page of studies


def test_tables_of_dated_studies_are_kept_too() -> None:
    page = kept_tables.ROOT / "docs" / "paper.md"
    text = "# S\n\n<!-- study main (2dd5fde, 2026-11-16) -->\n\n| a |\n|---|\n| 1.5 |\n\n<!-- end -->\n"
    assert len(measured(page, text)) == 1
    assert measured(page, text.replace(" (2dd5fde, 2026-11-16)", "")) == []


def test_figures_are_stored_only_if_they_were_printed() -> None:
    output = (
        "noise\n| what | median | turns |\n|---|---|---|\n| a | 1.25 | 1.00 to 1.50 |\n| b | 2.25 | 2.00 to 2.50 |\n"
    )
    assert unprinted([_HEAD, ["a (*)", "1.25", "1.00 to 1.50"]], output) == []
    assert unprinted([_HEAD, ["a", "2.25", "1.00 to 1.50"]], output) == ["a | 2.25 | 1.00 to 1.50"]
    side_by_side = [["", "a", "b"], ["median", "1.25 (1.00 to 1.50)", "2.25 (2.00 to 2.50)"]]
    assert unprinted(side_by_side, output) == []
    side_by_side[1][1] = "1.25 (1.00 to 2.50)"
    assert unprinted(side_by_side, output) == ["1.25 (1.00 to 2.50)"]


def test_a_command_that_fills_its_page_keeps_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tables, "KEPT", tmp_path)
    page = kept_tables.ROOT / "docs" / "generalise.md"
    kept_tables.keep(page, "generalise ")
    written = [json.loads(path.read_text("utf8")) for path in tmp_path.iterdir()]
    assert len(written) == len(measured(page)) >= len(SECTIONS) - 1  # one section is a list
    assert not any(one["taken over"] for one in written)
    kept_tables.keep(tmp_path / "generalise.md", "generalise ")  # a page elsewhere: nothing to keep, and no failure


def test_a_taken_over_table_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tables, "KEPT", tmp_path)
    Table("a.b", "", [["x"], ["1.5"]]).store(taken_over=True)
    assert json.loads((tmp_path / "a.b.json").read_text("utf8")) == {"taken over": True, "rows": [["x"], ["1.5"]]}
