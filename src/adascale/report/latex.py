"""Documents as LaTeX: tables that go into a paper as they are. They need the package booktabs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from adascale.report.document import DASH, Document, Shown, Table

_MARKS = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
_ARROWS = {"low": r" $\downarrow$", "high": r" $\uparrow$", None: ""}
_SPECIAL = {
    "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", DASH: "--", "\n": " ",
    **{sign: f"\\{sign}" for sign in "_&%#${}"},
}  # fmt: skip


def to_latex(document: Document) -> str:
    """A ``table`` for each table; the best value of a column is bold and the second is underlined."""
    return "\n".join(["% \\usepackage{booktabs}", *_tables(document)])


def _tables(document: Document) -> Iterator[str]:
    labels: set[str] = set()
    for table in document.tables:
        titles = " ".join(dict.fromkeys((document.title, table.title)))
        slug = re.sub(r"[^a-z0-9]+", "-", titles.lower()).strip("-") or "table"
        others = (f"{slug}-{turn}" for turn in itertools.count(2))
        label = next(one for one in itertools.chain([slug], others) if one not in labels)
        labels.add(label)
        yield (
            f"\\begin{{table}}[t]\n\\centering\n\\caption{{{_caption(document.title, table)}}}\n"
            f"\\label{{tab:{label}}}\n{_tabular(table)}\\end{{table}}\n"
        )


def _caption(title: str, table: Table) -> str:
    if table.caption:
        return escaped(table.caption)
    quantities = list(dict.fromkeys(column.title for column in table.columns))
    listed = " and ".join(filter(None, (", ".join(quantities[:-1]), quantities[-1])))
    deviation = any(one.spread(line) for one in table.shown() for line in table.lines)
    parts = [f"{title}, {table.title}: {listed} in percent" + (", mean ± standard deviation." if deviation else ".")]
    parts += ["The best value of a column is bold, the second best is underlined."]
    return escaped(" ".join([*parts, *table.note.splitlines()]))


def _tabular(table: Table) -> str:
    shown = table.shown()
    marks = [[""] * len(table.lines), *(table.marks(one) for one in shown)]
    lines = [
        " & ".join(_MARKS[marks[place][row]].format(escaped(text)) for place, text in enumerate(texts))
        for row, texts in enumerate(table.texts())
    ]
    header = " & ".join([escaped(table.head.capitalize()), *map(_heading, shown)])
    body = "".join(f"{line} \\\\\n" for line in lines)
    return (
        f"\\begin{{tabular}}{{l{'r' * len(shown)}}}\n\\toprule\n{_groups(shown)}{header} \\\\\n\\midrule\n{body}"
        "\\bottomrule\n\\end{tabular}\n"
    )


def _heading(shown: Shown) -> str:
    arrow = _ARROWS[shown.column.good] if shown.part in ("", "measured") else ""
    return escaped(f"{shown.name} {shown.part}".strip()) + arrow


def _groups(shown: list[Shown]) -> str:
    """The headings above the columns, each with a rule as long as its columns; nothing where there are none."""
    if not any(one.column.group for one in shown):
        return ""
    cells, rules, start = [""], [], 2
    for name, part in itertools.groupby(one.column.group for one in shown):
        count = len(list(part))
        cells.append(f"\\multicolumn{{{count}}}{{c}}{{{escaped(name)}}}")
        rules += [f"\\cmidrule(lr){{{start}-{start + count - 1}}}"] if name else []
        start += count
    return f"{' & '.join(cells)} \\\\\n{' '.join(rules)}\n"


def escaped(text: str) -> str:
    """The text with the characters escaped that LaTeX would interpret, or its usual fonts lack."""
    return "".join(_SPECIAL.get(sign, sign) for sign in text)
