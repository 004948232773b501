"""One table in every form: terminal, CSV, Markdown, LaTeX, HTML; and what of a document is stored."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from rich.console import Console

from adascale import InputError
from adascale.report import html
from adascale.report.charts import plot
from adascale.report.csv import quantities
from adascale.report.document import DASH, Cell, Chart, Column, Document, Line, Series, Style, Table, stored
from adascale.report.latex import to_latex
from adascale.report.markdown import to_markdown
from adascale.report.terminal import by_group, compact

COLUMNS = [Column("f", "FPR@95", "Near", "low"), Column("t", "time", "Near", unit="ms")]
LINES = [
    Line("a_b|c", {"f": Cell(12.345, 10.0, 0.5), "t": Cell(3.0)}),
    Line("best", {"f": Cell(2.0)}, remark="1 of 2 networks", rivals=None),
    Line("none", {}),
]
TABLE = Table("A <table>", COLUMNS, LINES, note="One.\nTwo.")


def printed(table: object) -> str:
    file = io.StringIO()
    Console(file=file, width=200).print(table)
    return file.getvalue()


def page(table: Table) -> str:
    return html.page("studies.html", notice=[], documents={"s": Document("d", [table])}, about={"s": {}})


def test_every_form_has_the_same_figures() -> None:
    document = Document("T", [TABLE], ["A note."], "Why?", "table 1")
    markdown, latex = to_markdown(document), to_latex(document)
    assert "| a_b\\|c | 10.00 | 12.35 ± 0.50 | +2.35 | 3.00 |" in markdown
    assert "| row | Near FPR@95 paper | Near FPR@95 measured | Near FPR@95 difference | Near time (ms) |" in markdown
    assert r"a\_b\textbar{}c & 10.00 & \textbf{12.35 $\pm$ 0.50} & +2.35 & 3.00 \\" in latex
    ((title, shown),) = by_group(TABLE)
    assert title == "A <table>: Near"
    assert "a_b|c 10.00 12.35 ± 0.50 +2.35 3.00" in re.sub(" +", " ", printed(shown))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page(TABLE).partition("<tbody>")[2])
    assert [re.sub("<.*?>", "", cell) for cell in cells[:4]] == ["10.00", "12.35 ± 0.50", "+2.35", "3.00"]
    first, second, *others = csv.DictReader(io.StringIO(quantities([TABLE])))
    assert first == {
        "block": "A <table>", "row": "a_b|c", "group": "Near", "quantity": "FPR@95", "unit": "%", "paper": "10.0000",
        "measured": "12.3450", "difference": "2.3450", "spread": "0.5000",
    }  # fmt: skip
    assert (second["quantity"], second["paper"], len(others)) == ("time", "", 1)


def test_the_whole_of_a_markdown_document() -> None:
    document = Document("T", [Table("t", COLUMNS[:1], LINES[1:], note="One.\nTwo.")], ["A note."], "Why?", "table 1")
    assert to_markdown(document, marked=True) == (
        "# T\n\nWhy? (Paper: table 1.)\n\n## t\n\n| row | Near FPR@95 |\n|---|---:|\n"
        f"| best (1 of 2 networks) | 2.00 |\n| none | {DASH} |\n\nOne.\n\nTwo.\n\nA note.\n"
    )


def test_groups_share_a_column_of_a_compact_table() -> None:
    text = printed(compact(Table("t", COLUMNS, [Line("a", {"f": Cell(1.0), "t": Cell(2.0)})])))
    assert "1.00 / 2.00" in text


def test_unranked_lines_and_other_rivals_do_not_count() -> None:
    lines = [
        Line(name, {"f": Cell(value)}, rivals) for name, value, rivals in zip("abcd", (3, 2, 1, 9), "xx y", strict=True)
    ]
    table = Table("t", COLUMNS[:1], [*lines, Line("e", {"f": Cell(0)}, None)])
    assert table.marks(table.shown()[0]) == ["second", "best", "best", "best", ""]
    text = Table("t", [Column("n", "n", good="low")], [Line("a", {"n": Cell(text="word")})])
    assert text.marks(text.shown()[0]) == [""]


def test_texts_are_sorted_as_texts_and_values_as_numbers() -> None:
    cells = {"f": Cell(1234, text="1,234"), "t": Cell(text="<b>")}
    text = page(Table("t", COLUMNS, [Line("a", cells)]))
    assert '<td class="number" data-value="1234">1,234</td><td data-value="&lt;b&gt;">&lt;b&gt;</td>' in text


def test_layout_is_not_stored() -> None:
    series = Series("s", (1.0, None), style=Style("red"), middle=1.0)
    chart = Chart("lines", "c", [series], ["a", "b"], note="n", x_range=(0, 1), y_range=(0, 1), size=(1, 1))
    line = Line("l", {"f": Cell(1.0, text="one")}, "x", "r")
    found = json.loads(json.dumps(stored(Table("t", COLUMNS[:1], [line], [chart], head="method"))))
    assert found == {
        "title": "t",
        "columns": [{"key": "f", "title": "FPR@95", "group": "Near", "good": "low", "unit": "%", "hint": ""}],
        "lines": [{"label": "l", "cells": {"f": {"measured": 1.0, "paper": None, "spread": None}}}],
        "charts": [
            {
                "kind": "lines", "title": "c", "labels": ["a", "b"], "x": "", "y": "", "log": False,
                "series": [{"name": "s", "y": [1.0, None], "x": [], "spread": [], "paper": False}],
            }
        ],
        "note": "",
    }  # fmt: skip


def test_panels_of_one_figure() -> None:
    chart = Chart("lines", "c", [Series("id", [1, 2]), Series("far", [2, 1])], ["a", "b"], "over", "quantity")
    figure = plot(*[chart] * 5, columns=3)
    assert [axes.get_visible() for axes in figure.axes] == [True] * 5 + [False]
    assert [axes.get_ylabel() for axes in figure.axes[:5]] == ["quantity", "", "", "quantity", ""]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["id", "far"]
    with pytest.raises(InputError, match="nothing to draw"):
        plot()
