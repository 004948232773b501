"""From rows of figures to blocks: the paper's beside the measured, means and deviations, the usual two charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from adascale.bench.figures import over_models
from adascale.bench.results import MEANS, Kind, ModelRun, Row, Spectrum
from adascale.paper import published as paper
from adascale.paper.studies.base import Block, Cell, Chart, Column, Line, Series
from adascale.report.html import AUROC, FPR95, FPR95_ID, KINDS, Figure, spectrum_name

USUAL: tuple[Figure, ...] = (FPR95, AUROC)
BOTH: tuple[Figure, ...] = (FPR95, AUROC, FPR95_ID)  # both meanings of FPR@95
Group = tuple[Spectrum, Kind]


def block(
    title: str,
    rows: Sequence[Row],
    table: str,
    place: paper.Place | None,
    names: Mapping[str, str] | None = None,
    figures: Sequence[Figure] = USUAL,
    spectra: Sequence[Spectrum] = ("ood",),
) -> Block:
    """A line for each method of the rows; over several models (networks, draws) mean and deviation.

    names: the paper's row for a label that is not called the same; "" for none.
    """
    rows = [row for row in rows if row.dataset in MEANS.values() and row.spectrum in spectra]
    groups: list[Group] = list(dict.fromkeys((row.spectrum, row.kind) for row in rows))
    values, models = over_models(rows), Counter((row.method, row.dataset, row.spectrum) for row in rows)
    lines, whose, most = [], set[str](), max(models.values())
    for label in dict.fromkeys(row.method for row in rows):
        cells = {}
        count = max(models[label, MEANS[kind], spectrum] for spectrum, kind in groups)
        for spectrum, kind in groups:
            compared = place if count == most else None  # the paper's mean is over all
            known = paper.figure(table, compared, (names or {}).get(label, label), kind, spectrum)
            whose |= {known.network} if known is not None else set()
            key = (label, MEANS[kind], spectrum)
            for figure in figures if key in values else ():
                mean, deviation = values[key][figure.field]
                spread = 100 * deviation if models[key] > 1 else None
                cells[_key(spectrum, kind, figure)] = Cell(100 * mean, getattr(known, figure.field, None), spread)
        lines.append(Line(label if count == most else f"{label} ({count} of {most} networks)", cells))
    columns = [_column(*group, figure) for group in groups for figure in figures]
    return Block(title, columns, lines, [chart(figure, groups, lines) for figure in USUAL], _whose(place, whose))


def _column(spectrum: Spectrum, kind: Kind, figure: Figure) -> Column:
    group = KINDS[kind] + spectrum_name(spectrum)
    return Column(_key(spectrum, kind, figure), figure.title, group, figure.good, hint=figure.hint)


def _key(spectrum: Spectrum, kind: Kind, figure: Figure) -> str:
    return f"{spectrum}.{kind}.{figure.field}"


def _whose(place: paper.Place | None, networks: set[str]) -> str:
    if place is None or paper.AVERAGE not in networks:
        return ""
    names = ", ".join(paper.paper_networks(place.data))
    seeds = ", three training seeds each" if place.data.startswith("cifar") else ""
    return f"The paper's figures here are means over {names}{seeds}."


def chart(figure: Figure, groups: Sequence[Group], lines: Sequence[Line]) -> Chart:
    """A figure of every line, measured and the paper's: a curve for values of one parameter, else rows of dots."""
    series = []
    for spectrum, kind in groups:
        name = KINDS[kind] + spectrum_name(spectrum)
        cells = [line.cells.get(_key(spectrum, kind, figure), Cell(None)) for line in lines]
        spread = tuple(cell.spread or 0.0 for cell in cells) if any(cell.spread for cell in cells) else ()
        series.append(Series(name, tuple(cell.measured for cell in cells), spread=spread))
        if any(cell.paper is not None for cell in cells):
            series.append(Series(name, tuple(cell.paper for cell in cells), paper=True))
    labels = tuple(line.label for line in lines)
    parameters = {label.partition("=")[0] for label in labels}
    curve = len(parameters) == 1 and "=" in labels[0]
    return Chart("lines" if curve else "dots", figure.title, series, labels, y=f"{figure.title} in %")


def missing(block: Block, run: ModelRun) -> Block:
    """The block with what is not in it: methods that could not be fitted, images that could not be read."""
    notes = [block.note, *(f"Left out: {label}: {reason}" for label, reason in run.left_out.items())]
    for name, info in run.sets.items():
        for image, reason in list(info.failures.items())[:1]:
            notes.append(f"{len(info.failures)} images of {name} could not be read, such as {image}: {reason}")
    unreadable = sum(len(info.failures) for info in run.sets.values())
    return replace(block, note="\n".join(filter(None, notes)), unreadable=unreadable)
