"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import rich.table

from adascale.report.document import Table


def compact(table: Table) -> rich.table.Table:
    """The table with one column for each group of columns, whose values are separated by slashes.

    Where the groups have different quantities, each heading names its own.
    """
    made = rich.table.Table(table.head, title=table.title, title_justify="left", title_style="")
    shown = table.shown()
    groups = dict.fromkeys(one.column.group for one in shown)
    titles = {group: " / ".join(one.name for one in shown if one.column.group == group) for group in groups}
    alike = len(set(titles.values())) == 1
    for group, title in titles.items():
        made.add_column(group if alike else f"{group}\n{title}", justify="right")
    for line in table.lines:
        parts = (" / ".join(one.text(line) for one in shown if one.column.group == group) for group in groups)
        made.add_row(line.whole_label, *parts)
    return made


def by_group(table: Table) -> Iterator[tuple[str, rich.table.Table]]:
    """A title and a table for each group of columns: all groups side by side rarely fit."""
    for group in dict.fromkeys(column.group for column in table.columns):
        part = replace(table, columns=[column for column in table.columns if column.group == group])
        made = rich.table.Table(box=None, pad_edge=False)
        made.add_column("", no_wrap=True)
        for one in part.shown():
            kind = "diff." if one.part == "difference" else one.part
            made.add_column(f"{one.name}\n{kind}".strip(), justify="right")
        for texts in part.texts():
            made.add_row(*texts)
        yield f"{table.title}: {group}" if group else table.title, made
