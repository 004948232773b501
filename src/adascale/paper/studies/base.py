"""A study and what it finds, as plain data that survives a file.

A `Study` runs on a `Setting` (see `studies.measure`) and gives a `Result`: blocks of lines, each cell with the measured
value and, where the paper has one for this network and data, the paper's. A result on disk is all that the tables and
the report are made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from adascale.core.errors import InputError

FORMAT, FORMAT_VERSION = "adascale-study", 1


@dataclass(frozen=True)
class Cell:
    """A value in its column's unit; ``spread``: the deviation over networks or draws; ``paper``: the paper's value."""

    measured: float | None
    paper: float | None = None
    spread: float | None = None

    @property
    def difference(self) -> float | None:
        """Measured minus the paper's."""
        return None if self.measured is None or self.paper is None else self.measured - self.paper


@dataclass(frozen=True)
class Column:
    """A quantity. group: what it stands under, such as near-OOD; good: which end is (None: neither)."""

    key: str
    title: str
    group: str = ""
    good: Literal["low", "high"] | None = None
    unit: str = "%"
    hint: str = ""


@dataclass(frozen=True)
class Line:
    """A row of a table: its label, and cells by the key of their column."""

    label: str
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class Series:
    """A curve, or a row of a grid. spread: half the height of a band around it; paper: as printed there, not measured.

    Without ``x`` the values stand at 0, 1, 2, ..., where the chart's labels are.
    """

    name: str
    y: Sequence[float | None]
    x: Sequence[float] = ()
    spread: Sequence[float] = ()
    paper: bool = False


@dataclass(frozen=True)
class Chart:
    """A plot. lines: values over ``x`` or labels; dots: one row of dots for each label; bars: the same as bars;
    steps: a histogram, ``x`` one longer than ``y``; grid: coloured cells, a series a row, a label a column.
    """

    kind: Literal["lines", "dots", "bars", "steps", "grid"]
    title: str
    series: Sequence[Series]
    labels: Sequence[str] = ()
    x: str = ""
    y: str = ""
    log: bool = False


@dataclass(frozen=True)
class Block:
    """One table with its charts, such as that of one network. note: what a reader of it must know, a line each.

    unreadable: images that could not be read and are not in the figures.
    """

    title: str
    columns: Sequence[Column]
    lines: Sequence[Line]
    charts: Sequence[Chart] = ()
    note: str = ""
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
        """As JSON takes it."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}


def has_paper(blocks: Sequence[Block]) -> bool:
    """Whether a figure of the paper stands in any of them."""
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
