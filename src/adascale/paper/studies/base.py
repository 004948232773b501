"""What a study finds, as plain data that can be stored in a file.

A `Study` runs on a `Setting` (see `studies.setting`) and gives a `Result`: tables whose cells have the measured value
and, where the paper has one for this network and data, the paper's. All files and the report are made from results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adascale.core.errors import InputError
from adascale.report.document import Cell, Chart, Column, Line, Series, Table, stored

FORMAT, FORMAT_VERSION = "adascale-study", 1


@dataclass(frozen=True)
class Block(Table):
    """The table of one network. unreadable: images that could not be read and are not in the figures."""

    unreadable: int = 0


@dataclass(frozen=True)
class Result:
    """What a study found. notes: how to read it; about: versions, data with sizes, networks, settings."""

    study: str
    title: str
    source: str
    question: str
    suite: str
    blocks: Sequence[Block]
    notes: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The result as JSON takes it."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **stored(self)}


def has_paper(blocks: Sequence[Block]) -> bool:
    """Whether any cell has a figure of the paper."""
    return any(cell.paper is not None for block in blocks for line in block.lines for cell in line.cells.values())


def from_document(document: Any) -> Result:
    """The result that a `Result.document` was made from."""
    try:
        if document.pop("format") != FORMAT or document.pop("format_version") != FORMAT_VERSION:
            raise KeyError("format")
        blocks = [_block(**block) for block in document.pop("blocks")]
        return Result(**document, blocks=blocks)
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"This is not a result of adascale study that this version can read ({error}).") from error


def _block(columns: Any, lines: Any, charts: Any, **rest: Any) -> Block:
    return Block(
        columns=[Column(**column) for column in columns],
        lines=[Line(line["label"], {key: Cell(**cell) for key, cell in line["cells"].items()}) for line in lines],
        charts=[Chart(**{**chart, "series": [Series(**series) for series in chart["series"]]}) for chart in charts],
        **rest,
    )
