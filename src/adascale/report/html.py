"""A benchmark's rows as HTML tables: escaped, sortable, the best two of each column marked."""

from __future__ import annotations

import html
import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from adascale.bench.results import MEANS, Kind, Row, Run, Spectrum
from adascale.report.charts import printable


class Column(NamedTuple):
    """A column: its title, what it stands under, and which end of it is good (None: no ranking)."""

    title: str
    group: str = ""
    good: Literal["low", "high"] | None = None
    hint: str = ""


class Cell(NamedTuple):
    """A cell: its HTML, and what it is sorted by (None: unknown, always last)."""

    content: str
    value: float | str | None
    ranked: bool = True


class Figure(NamedTuple):
    """A quantity of a row, with what the tables call it."""

    field: str
    title: str
    good: Literal["low", "high"]
    hint: str


FPR95 = Figure("fpr95", "FPR@95", "low", "share of ID flagged where 95 % of the OOD is caught; lower is better")
AUROC = Figure("auroc", "AUROC", "high", "chance that an OOD image scores above an ID image; higher is better")
FPR95_ID = Figure("fpr95_id", "FPR@95-ID", "low", "share of OOD accepted where 95 % of the ID is kept; lower is better")
AUPR_IN = Figure("aupr_in", "AUPR-in", "high", "area under precision and recall, ID as positive; higher is better")
AUPR_OUT = Figure("aupr_out", "AUPR-out", "high", "area under precision and recall, OOD as positive; higher is better")
DASH = "\N{EN DASH}"
SUMMARY = (FPR95, AUROC, FPR95_ID)
KINDS = {"near": "Near-OOD", "far": "Far-OOD", "shifted": "Shifted ID", "id": "ID"}


def escape(text: str) -> str:
    """The text as HTML shows it, whatever it holds."""
    return html.escape(printable(text))


def percent(share: float) -> str:
    return f"{100 * share:.2f}"


def spectrum_name(spectrum: Spectrum) -> str:
    return ", full spectrum" if spectrum == "full" else ""


def table(name: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], groups: Sequence[str] = ()) -> str:
    """A sortable table in a container of its own that scrolls; ``groups``: rows are ranked among those of their own."""
    groups = groups or [""] * len(rows)
    marks = [_marks(column, [row[place] for row in rows], groups) for place, column in enumerate(columns)]
    body = "".join(
        "<tr>" + "".join(_cell(cell, marks[place][line], place == 0) for place, cell in enumerate(row)) + "</tr>\n"
        for line, row in enumerate(rows)
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">\n<table class="sortable">\n'
        f'<caption class="hidden">{escape(name)}</caption>\n'
        f"<thead>\n{_group_row(columns)}{_title_row(columns)}</thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n"
    )


def _group_row(columns: Sequence[Column]) -> str:
    if not any(column.group for column in columns):
        return ""
    spans: list[list[str]] = []
    for column in columns:
        if spans and spans[-1][0] == column.group:
            spans[-1].append("")
        else:
            spans.append([column.group])
    cells = (
        f'<th colspan="{len(span)}" scope="colgroup" class="group">{escape(span[0])}</th>' if span[0] else "<td></td>"
        for span in spans
    )
    return f"<tr>{''.join(cells)}</tr>\n"


def _title_row(columns: Sequence[Column]) -> str:
    return f"<tr>{''.join(_head(place, column) for place, column in enumerate(columns))}</tr>\n"


def _head(place: int, column: Column) -> str:
    first = "descending" if column.good == "high" else "ascending"
    arrow = {"low": " ↓", "high": " ↑", None: ""}[column.good]
    hint = f' title="{escape(column.hint)}"' if column.hint else ""
    return (
        f'<th scope="col" aria-sort="none"><button type="button" data-column="{place}" data-first="{first}"{hint}>'
        f"{escape(column.title)}{arrow}</button></th>"
    )


def _cell(cell: Cell, mark: str, head: bool) -> str:
    kinds = [mark] if mark else []
    if not isinstance(cell.value, str) and not head:
        kinds.append("number")
    classes = f' class="{" ".join(kinds)}"' if kinds else ""
    value = "" if cell.value is None else f' data-value="{_sorted_by(cell.value)}"'
    start, end = ('<th scope="row"', "</th>") if head else ("<td", "</td>")
    return f"{start}{classes}{value}>{cell.content}{end}"


def _sorted_by(value: float | str) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.6g}"


def _marks(column: Column, cells: Sequence[Cell], groups: Sequence[str]) -> list[str]:
    """ "best" and "second" in each group, by the figures as they are printed: what looks equal is equal."""
    if column.good is None:
        return [""] * len(cells)
    rivals: dict[str, set[float]] = {group: set() for group in groups}
    for cell, group in zip(cells, groups, strict=True):
        if (value := _printed(cell)) is not None:
            rivals[group].add(value)
    marks: dict[tuple[str, float | None], str] = {}
    for group, values in rivals.items():
        order = sorted(values, reverse=column.good == "high")
        marks |= {(group, value): mark for value, mark in zip(order, ("best", "second"), strict=False) if order[1:]}
    return [marks.get((group, _printed(cell)), "") for cell, group in zip(cells, groups, strict=True)]


def _printed(cell: Cell) -> float | None:
    return round(cell.value, 4) if cell.ranked and isinstance(cell.value, float) else None


def summary(run: Run, model: str) -> str:
    """One network: a line a method, the means over the near and the far sets."""
    rows = [row for row in _means(run.rows) if row.model == model]
    found, keys = {(row.method, row.spectrum, row.kind): row for row in rows}, _keys(rows)
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        line = [Cell(escape(method), method)]
        for spectrum, kind in keys:
            row = found.get((method, spectrum, kind))
            line += [_share(getattr(row, figure.field) if row else None) for figure in SUMMARY]
        lines.append(line)
    return table(f"Summary of {model}", _summary_columns(keys), lines)


def summary_over_networks(run: Run) -> str:
    """All networks: mean and standard deviation. A method missing on some says on how many, and is not ranked."""
    rows, networks = list(_means(run.rows)), len({row.model for row in run.rows})
    keys, lines = _keys(rows), []
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        count = len({row.model for row in own})
        note = f' <small class="note">{count} of {networks} networks</small>' if count < networks else ""
        line = [Cell(escape(method) + note, method)]
        for spectrum, kind in keys:
            part = [row for row in own if row.spectrum == spectrum and row.kind == kind]
            line += [_spread([getattr(row, figure.field) for row in part], len(part) == networks) for figure in SUMMARY]
        lines.append(line)
    return table("Mean over the networks", _summary_columns(keys), lines)


def per_set(rows: Sequence[Row], several: bool) -> str:
    """ID against one OOD set: a line a method, and a network where there are several."""
    columns = [Column("Method"), *([Column("Network")] if several else [])]
    columns += [_column(AUROC), Column("95 % interval", hint="of the AUROC, by bootstrap over the images")]
    columns += [_column(figure) for figure in (FPR95, FPR95_ID, AUPR_IN, AUPR_OUT)]
    columns += [Column("ID images"), Column("OOD images")]
    title = f"{rows[0].dataset}{spectrum_name(rows[0].spectrum)}"
    return table(title, columns, [_set_line(row, several) for row in rows], [row.model for row in rows])


def _set_line(row: Row, several: bool) -> list[Cell]:
    line = [Cell(escape(row.method), row.method), *([Cell(escape(row.model), row.model)] if several else [])]
    bounds = row.low is not None and row.high is not None
    interval = f"{percent(row.low or 0)}{DASH}{percent(row.high or 0)}" if bounds else DASH
    line += [_share(row.auroc), Cell(interval, row.low)]
    line += [_share(getattr(row, figure.field)) for figure in (FPR95, FPR95_ID, AUPR_IN, AUPR_OUT)]
    return [*line, *(Cell(f"{count:,}", count) for count in (row.id_images, row.ood_images))]


def is_mean(row: Row) -> bool:
    """Whether the row is the mean over the sets of its kind."""
    return row.dataset == MEANS.get(row.kind)


def _means(rows: Iterable[Row]) -> Iterable[Row]:
    return (row for row in rows if is_mean(row))


def _keys(rows: Sequence[Row]) -> list[tuple[Spectrum, Kind]]:
    """The groups of columns: near before far, OOD detection before its full-spectrum variant."""
    present = {(row.spectrum, row.kind) for row in rows}
    spectra: tuple[Spectrum, ...] = ("ood", "full")
    kinds: tuple[Kind, ...] = ("near", "far")
    return [key for key in itertools.product(spectra, kinds) if key in present]


def _summary_columns(keys: Sequence[tuple[Spectrum, Kind]]) -> list[Column]:
    found = [Column("Method")]
    for spectrum, kind in keys:
        found += [_column(figure, KINDS[kind] + spectrum_name(spectrum)) for figure in SUMMARY]
    return found


def _column(figure: Figure, group: str = "") -> Column:
    return Column(figure.title, group, figure.good, figure.hint)


def _share(share: float | None) -> Cell:
    return Cell(DASH, None) if share is None else Cell(percent(share), float(share))


def _spread(values: Sequence[float], ranked: bool) -> Cell:
    if not values:
        return Cell(DASH, None)
    mean = statistics.fmean(values)
    deviation = f" <small>± {percent(statistics.stdev(values))}</small>" if len(values) > 1 else ""
    return Cell(percent(mean) + deviation, mean, ranked)
