"""Tables as CSV."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adascale.report.document import PARTS, Table
from adascale.storage.rows import write_csv

_QUANTITIES = ("block", "row", "group", "quantity", "unit", *PARTS, "spread")


def csv_text(records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """The records under a header of the columns."""
    file = io.StringIO()
    write_csv(file, records, columns)
    return file.getvalue()


def quantities(tables: Iterable[Table]) -> str:
    """Every cell of the tables in a row of its own."""
    records = [
        {"block": table.title, "row": line.label, "group": column.group, "quantity": column.title, "unit": column.unit}
        | {part: _number(getattr(cell, part)) for part in (*PARTS, "spread")}
        for table in tables
        for line in table.lines
        for column in table.columns
        if (cell := line.cells.get(column.key)) is not None
    ]
    return csv_text(records, _QUANTITIES)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
