"""Documents as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from adascale.report.document import Document, Table

_MARKS = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}


def to_markdown(document: Document, marked: bool = False) -> str:
    """Title, tables and notes; with ``marked`` the best value of a column is bold and the second is underlined."""
    lead = f"{document.lead} (Paper: {document.source}.)" if document.source else document.lead
    parts = [f"# {in_markdown(document.title)}\n", *([f"{in_markdown(lead)}\n"] if lead else [])]
    for table in document.tables:
        parts += [f"## {in_markdown(table.title)}\n", _table(table, marked)]
        parts += [f"{in_markdown(sentence)}\n" for sentence in table.note.splitlines()]
    return "\n".join([*parts, *(f"{in_markdown(note)}\n" for note in document.notes)])


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text; others are on the right unless they begin with a letter. The texts must be
    escaped already.
    """
    rows = [list(line) for line in lines]
    texts = (any(line[place][:1].isalpha() for line in rows) for place in range(1, len(header)))
    rule = "|".join(["---", *("---" if text else "---:" for text in texts)])
    body = "\n".join(f"| {' | '.join(line)} |" for line in rows)
    return f"| {' | '.join(header)} |\n|{rule}|\n{body}\n"


def in_markdown(text: str) -> str:
    """The text with the characters escaped that Markdown would interpret."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _table(table: Table, marked: bool) -> str:
    lines = [[in_markdown(text) for text in texts] for texts in table.texts()]
    for place, shown in enumerate(table.shown() if marked else (), start=1):
        for line, mark in zip(lines, table.marks(shown), strict=True):
            line[place] = _MARKS[mark].format(line[place])
    return markdown_table([table.head, *(in_markdown(shown.title) for shown in table.shown())], lines)
