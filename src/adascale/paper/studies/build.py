"""From rows of figures to blocks: measured values beside the paper's, means and deviations, the usual two charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from adascale.bench.results import USUAL, ModelRun, Row, Spectrum
from adascale.bench.tables import summary
from adascale.paper import published as paper
from adascale.paper.studies.base import Block
from adascale.report.document import Cell, Chart, Column, Line, Series


def block(
    title: str,
    rows: Sequence[Row],
    table: str,
    place: paper.Place | None,
    names: Mapping[str, str] | None = None,
    figures: Sequence[Column] = USUAL,
    spectra: Sequence[Spectrum] = ("ood",),
) -> Block:
    """A line for each method of the rows; over several models (networks, draws), mean and standard deviation.

    names: the paper's row for a label that the paper calls by another name; "" if it has none.
    """
    found = summary(title, [row for row in rows if row.spectrum in spectra], figures)
    lines, whose = [], set[str]()
    for line in found.lines:
        cells = {}
        for key, cell in line.cells.items():
            spectrum, kind, figure = key.split(".")
            compared = None if line.remark else place  # the paper's mean is over all networks
            known = paper.figure(table, compared, (names or {}).get(line.label, line.label), kind, spectrum)
            whose |= {known.network} if known is not None else set()
            cells[key] = replace(cell, paper=getattr(known, figure, None))
        lines.append(Line(line.whole_label, cells))
    charts = [_chart(metric, found.columns, lines) for metric in USUAL]
    return Block(title, found.columns, lines, charts, _whose(place, whose))


def _whose(place: paper.Place | None, networks: set[str]) -> str:
    if place is None or paper.AVERAGE not in networks:
        return ""
    names = ", ".join(paper.paper_networks(place.data))
    seeds = ", three training seeds each" if place.data.startswith("cifar") else ""
    return f"The paper's figures here are means over {names}{seeds}."


def _chart(metric: Column, columns: Sequence[Column], lines: Sequence[Line]) -> Chart:
    """A metric of every line, measured and the paper's: a curve for values of one parameter, otherwise rows of dots."""
    series = []
    for column in columns:
        if column.title == metric.title:
            cells = [line.cells.get(column.key, Cell()) for line in lines]
            spread = tuple(cell.spread or 0.0 for cell in cells) if any(cell.spread for cell in cells) else ()
            series.append(Series(column.group, tuple(cell.measured for cell in cells), spread=spread))
            if any(cell.paper is not None for cell in cells):
                series.append(Series(column.group, tuple(cell.paper for cell in cells), paper=True))
    labels = tuple(line.label for line in lines)
    curve = len({label.partition("=")[0] for label in labels}) == 1 and "=" in labels[0]
    return Chart("lines" if curve else "dots", metric.title, series, labels, y=f"{metric.title} in %")


def missing(block: Block, run: ModelRun) -> Block:
    """The block with what is not in it: methods that could not be fitted, images that could not be read."""
    notes = [block.note, *(f"Left out: {label}: {reason}" for label, reason in run.left_out.items())]
    for name, info in run.sets.items():
        for image, reason in list(info.failures.items())[:1]:
            notes.append(f"{len(info.failures)} images of {name} could not be read, such as {image}: {reason}")
    unreadable = sum(len(info.failures) for info in run.sets.values())
    return replace(block, note="\n".join(filter(None, notes)), unreadable=unreadable)
