"""The document model: tables and charts as plain data, from which every form (terminal, CSV, HTML, ...) is rendered.

Fields that are marked as layout only matter for rendering; `stored` leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, NamedTuple

DASH = "\N{EN DASH}"  # printed where a value is unknown
DIGITS = 2
FIGURE_FORMATS = ("png", "svg", "pdf")
_LAYOUT = {"layout": True}


@dataclass(frozen=True)
class Cell:
    """A value in its column's unit. spread: its standard deviation; paper: the value that the paper prints.

    text: what is printed in place of the value; a cell with a text and no value is sorted by the text.
    """

    measured: float | None = None
    paper: float | None = None
    spread: float | None = None
    text: str = field(default="", metadata=_LAYOUT)

    @property
    def difference(self) -> float | None:
        """The measured value minus the paper's."""
        return None if self.measured is None or self.paper is None else self.measured - self.paper


@dataclass(frozen=True)
class Column:
    """A quantity. group: the heading above it, such as Near-OOD; good: the end that is better (None: neither is)."""

    key: str
    title: str
    group: str = ""
    good: Literal["low", "high"] | None = None
    unit: str = "%"
    hint: str = ""


@dataclass(frozen=True)
class Line:
    """A row of a table: its label, and its cells by the key of their column.

    rivals: lines are ranked among those with the same rivals; None: the line is not ranked. remark: follows the label.
    hint: what the label means, for who points at it.
    """

    label: str
    cells: Mapping[str, Cell]
    rivals: str | None = field(default="", metadata=_LAYOUT)
    remark: str = field(default="", metadata=_LAYOUT)
    hint: str = field(default="", metadata=_LAYOUT)

    @property
    def whole_label(self) -> str:
        """The label with the remark in parentheses, in those of the label if it ends with some."""
        if not self.remark:
            return self.label
        return f"{self.label[:-1]}, {self.remark})" if self.label.endswith(")") else f"{self.label} ({self.remark})"


class Style(NamedTuple):
    """How a series is drawn."""

    colour: str
    dashes: Any = "solid"


@dataclass(frozen=True)
class Series:
    """A curve, or a row of a grid. spread: half the height of the band around it; paper: the paper's own values.

    Without ``x`` the values stand at 0, 1, 2, ..., where the labels of the chart are. intervals: the ends of that of
    each value, in place of a spread.
    """

    name: str
    y: Sequence[float | None]
    x: Sequence[float] = ()
    spread: Sequence[float] = ()
    paper: bool = False
    style: Style | None = field(default=None, metadata=_LAYOUT)
    middle: float | None = field(default=None, metadata=_LAYOUT)
    intervals: Sequence[tuple[float, float] | None] = field(default=(), metadata=_LAYOUT)


@dataclass(frozen=True)
class Chart:
    """A plot.

    lines: values over ``x`` or over the labels; dots: a row of dots for each label; bars: a row of bars for each label;
    steps: histograms, whose ``x`` is one longer than ``y``; grid: coloured cells, a series for each row and a label for
    each column; roc: curves in the unit square; ridges: a histogram in a row of its own for each series, with a tick at
    its ``middle``; ratios: a row of bars for each series, with the labels beside them and a line at 1. marks: places on
    the axis of ``x`` (of the values, where they run to the right) with a line and a name.
    """

    kind: Literal["lines", "dots", "bars", "steps", "grid", "roc", "ridges", "ratios"]
    title: str
    series: Sequence[Series]
    labels: Sequence[str] = ()
    x: str = ""
    y: str = ""
    log: bool = False
    note: str = field(default="", metadata=_LAYOUT)  # to the right of the title
    x_range: tuple[float, float] | None = field(default=None, metadata=_LAYOUT)
    y_range: tuple[float, float] | None = field(default=None, metadata=_LAYOUT)
    size: tuple[float, float] | None = field(default=None, metadata=_LAYOUT)  # inches
    marks: Mapping[str, float] = field(default_factory=dict, metadata=_LAYOUT)


class Shown(NamedTuple):
    """A printed column. A quantity has one, or three where the paper has values of it."""

    column: Column
    part: Literal["", "paper", "measured", "difference"]

    @property
    def name(self) -> str:
        """The quantity with its unit, unless that is percent or there is none."""
        return self.column.title + ("" if self.column.unit in ("", "%") else f" ({self.column.unit})")

    @property
    def title(self) -> str:
        """All that identifies the column, in one line."""
        return f"{self.column.group} {self.name} {self.part}".strip()

    def value(self, line: Line) -> float | None:
        value: float | None = getattr(self.cell(line), self.part or "measured")
        return value

    def cell(self, line: Line) -> Cell:
        return line.cells.get(self.column.key, Cell())

    def text(self, line: Line) -> str:
        """The value as it is printed, without its spread."""
        value, text = self.value(line), self.cell(line).text
        sign = "+" if self.part == "difference" else ""
        return text or (DASH if value is None else f"{value:{sign}.{DIGITS}f}")

    def spread(self, line: Line) -> str:
        spread = self.cell(line).spread
        hidden = spread is None or self.part in ("paper", "difference") or self.value(line) is None
        return "" if hidden else f" ± {spread:.{DIGITS}f}"


@dataclass(frozen=True)
class Table:
    """A table with its charts. note: what its reader must know, one sentence for each line; head: over the labels.

    rest: lines that are not shown; they count where the best value of a column is marked. caption: all that a paper
    says about the table, in place of the titles and the note.
    """

    title: str
    columns: Sequence[Column]
    lines: Sequence[Line]
    charts: Sequence[Chart] = ()
    note: str = ""
    head: str = field(default="row", metadata=_LAYOUT)
    rest: Sequence[Line] = field(default=(), metadata=_LAYOUT)
    caption: str = field(default="", metadata=_LAYOUT)

    def shown(self) -> list[Shown]:
        """The printed columns in order."""
        found = []
        for column in self.columns:
            known = any(cell.paper is not None for line in self.lines if (cell := line.cells.get(column.key)))
            found += [Shown(column, part) for part in PARTS] if known else [Shown(column, "")]
        return found

    def texts(self) -> list[list[str]]:
        """The label and the printed cells of every line."""
        shown = self.shown()
        return [[line.whole_label, *(one.text(line) + one.spread(line) for one in shown)] for line in self.lines]

    def marks(self, shown: Shown) -> list[str]:
        """``best``, ``second`` or nothing for each line, by the values as they are printed."""
        lines = [*self.lines, *self.rest]
        marks = [""] * len(lines)
        if shown.column.good is None or shown.part in ("paper", "difference"):
            return marks[: len(self.lines)]
        for rivals in {line.rivals for line in lines} - {None}:
            places = [place for place, line in enumerate(lines) if line.rivals == rivals]
            values = [shown.value(lines[place]) for place in places]
            printed = [None if value is None else round(value, DIGITS) for value in values]
            for place, mark in zip(places, ranked(printed, shown.column.good == "low"), strict=True):
                marks[place] = mark
        return marks[: len(self.lines)]


PARTS: tuple[Literal["paper", "measured", "difference"], ...] = ("paper", "measured", "difference")


@dataclass(frozen=True)
class Document:
    """Tables under one title. lead: the first sentence; source: where the paper has it; notes: one sentence each."""

    title: str
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    lead: str = ""
    source: str = ""


def ranked(values: Sequence[float | None], lower_is_better: bool) -> list[str]:
    """``best``, ``second`` or nothing for each value; equal values share a place, None has none."""
    order = sorted({value for value in values if value is not None}, reverse=not lower_is_better)[:2]
    places = dict(zip(order, ("best", "second"), strict=False))
    return ["" if value is None else places.get(value, "") for value in values]


def stored(part: Any) -> Any:
    """Any part of a document as JSON takes it, without what only concerns its layout."""
    if is_dataclass(part):
        return {one.name: stored(getattr(part, one.name)) for one in fields(part) if not one.metadata.get("layout")}
    if isinstance(part, Mapping):
        return {name: stored(value) for name, value in part.items()}
    return [stored(value) for value in part] if isinstance(part, list | tuple) else part
