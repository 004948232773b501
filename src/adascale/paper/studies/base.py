"""What a study finds, as plain data that can be stored in a file.

A `Study` runs on an `Experiment` and gives a `Result`: tables whose cells have the measured value and, where the paper
has one for this network and data, the paper's. All files and the report are made from results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adascale.report.document import Table, stored

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
