"""Documents as LaTeX."""

from __future__ import annotations

from adascale.report.document import Document, Table

_MARKS = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
_SPECIAL = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}


def to_latex(document: Document) -> str:
    """A ``tabular`` for each table; the best value of a column is bold and the second is underlined."""
    return "\n".join(_tabular(f"{document.title}, {table.title}", table) for table in document.tables)


def _tabular(title: str, table: Table) -> str:
    shown = table.shown()
    marks = [[""] * len(table.lines), *(table.marks(one) for one in shown)]
    lines = [
        " & ".join(_MARKS[marks[place][row]].format(_escaped(text)) for place, text in enumerate(texts))
        for row, texts in enumerate(table.texts())
    ]
    quantities = " / ".join(dict.fromkeys(column.title for column in table.columns))
    body = "\n".join(f"{line} \\\\" for line in lines)
    header = " & ".join(map(_escaped, [table.head, *(one.title for one in shown)]))
    return (
        f"% {title}: {quantities} in percent\n\\begin{{tabular}}{{l{'r' * len(shown)}}}\n\\hline\n"
        f"{header} \\\\\n\\hline\n{body}\n\\hline\n\\end{{tabular}}\n"
    )


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(sign) or (f"\\{sign}" if sign in "_&%#${}" else sign) for sign in text)
