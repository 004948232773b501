"""What every study is: a name, the question that it answers, and the tables that answer it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from adascale.bench import figures as bench
from adascale.bench.columns import USUAL, Spectrum
from adascale.bench.results import ModelRun, Row
from adascale.bench.tables import summary
from adascale.paper import published
from adascale.paper.studies.base import Block, Result, has_paper
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.report.document import Cell, Chart, Column, Line, Series

# The first six fields of every study of the package, by its name and in the order of the report
TEXTS: Mapping[str, tuple[str, str, str, str, str, str]] = {
    line["name"]: (line["name"], line["title"], line["source"], line["question"], line["passes"], line["note"])
    for line in published.lines("studies")
}


@dataclass(frozen=True)
class Study(ABC):
    """A table or figure of the paper.

    source: the paper's name of it. passes: which network passes it needs, for those who plan. note: how to read it.
    """

    name: str
    title: str
    source: str
    question: str
    passes: str = "clean and one view"
    note: str = ""
    sensitivity: bool = False  # whether AdaSCALE starts from the paper's sensitivity tables
    uses_given: ClassVar[bool] = True  # whether the experiment's parameters of AdaSCALE count

    def run(self, experiment: Experiment) -> Result:
        """Measure everything that the study shows."""
        parameters = {subject.name: self.parameters(experiment, subject) for subject in experiment.subjects}
        blocks = list(self.blocks(experiment))
        notes = [
            *self.notes(experiment),
            *(experiment.changed_notes() if self.uses_given else []),
            *(experiment.missing_sets_notes() if has_paper(blocks) else []),
        ]
        about = {"command": experiment.command, **experiment.about, "settings": parameters}
        return Result(self.name, self.title, self.source, self.question, experiment.suite.name, blocks, notes, about)

    @abstractmethod
    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        """The tables."""

    def notes(self, experiment: Experiment) -> list[str]:
        """How to read the tables."""
        return [self.note] if self.note else []

    def parameters(self, experiment: Experiment, subject: Subject) -> dict[str, Any]:
        """The parameters that the study starts from."""
        return experiment.adascale(subject, sensitivity=self.sensitivity).parameters


class Measured(NamedTuple):
    """The methods on one network. rows: the paper's row for each label, "" for none. note: goes below the table."""

    run: ModelRun
    rows: Mapping[str, str]
    note: str = ""


@dataclass(frozen=True)
class NetworkTables(Study):
    """A table of methods for each network, and one of their means where there are several networks."""

    spectra: tuple[Spectrum, ...] = ("ood",)
    figures: Sequence[Column] = USUAL
    table: str = ""  # of the paper's figures [default: the study's name]
    mean_first: bool = False
    mean_title: ClassVar[str] = "mean over {} networks"

    @abstractmethod
    def measured(self, experiment: Experiment, subject: Subject) -> Measured:
        """The methods on this network."""

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        table, every, made = self.table or self.name, list[Row](), list[Block]()
        paper_rows: dict[str, str] = {}
        for subject in experiment.subjects:
            run, rows, note = self.measured(experiment, subject)
            every += (own := figures_of(run))
            paper_rows |= {label: row if paper_rows.get(label, row) == row else "" for label, row in rows.items()}
            place = experiment.compared(subject)
            found = missing(block(subject.name, own, table, place, rows, self.figures, self.spectra), run)
            made.append(with_note(found, note))
        means = []
        if len(made) > 1:
            title, place = self.mean_title.format(len(made)), experiment.compared_mean()
            means.append(block(title, every, table, place, paper_rows, self.figures, self.spectra))
        yield from (*means, *made) if self.mean_first else (*made, *means)


def figures_of(run: ModelRun) -> list[Row]:
    """The figures of a run, without the bootstrap intervals, which no study shows."""
    return bench.figures(run, intervals=False)


def block(
    title: str,
    rows: Iterable[Row],
    table: str,
    place: published.Place | None,
    names: Mapping[str, str] = {},
    figures: Sequence[Column] = USUAL,
    spectra: Sequence[Spectrum] = ("ood",),
) -> Block:
    """A line for each method of the rows; over several models (networks, draws), mean and standard deviation.

    table, place: where the paper's figures are. names: the paper's row for a label that the paper calls by another
    name; "" if it has none.
    """
    found = summary(title, [row for row in rows if row.spectrum in spectra], figures)
    lines, whose = [], set[str]()
    for line in found.lines:
        cells, row = {}, names.get(line.label, line.label)
        compared = None if line.remark else place  # the paper's mean is over all networks
        for key, cell in line.cells.items():
            spectrum, kind, figure = key.split(".")
            if known := published.figure(table, compared, row, kind, spectrum):
                whose.add(known.network)
            cells[key] = replace(cell, paper=getattr(known, figure, None))
        lines.append(Line(line.whole_label, cells))
    note = ""
    if place is not None and published.AVERAGE in whose:
        seeds = ", three training seeds each" if place.data.startswith("cifar") else ""
        note = f"The paper's figures here are means over {', '.join(published.paper_networks(place.data))}{seeds}."
    return Block(title, found.columns, lines, [_chart(metric, found.columns, lines) for metric in USUAL], note)


def _chart(metric: Column, columns: Sequence[Column], lines: Sequence[Line]) -> Chart:
    """A metric of every line: a curve for values of one parameter, otherwise rows of dots."""
    series = []
    for column in columns:
        if column.title == metric.title:
            series += series_of(column.group, [line.cells.get(column.key, Cell()) for line in lines])
    labels = tuple(line.label for line in lines)
    curve = len({label.partition("=")[0] for label in labels}) == 1 and "=" in labels[0]
    return Chart("lines" if curve else "dots", metric.title, series, labels, y=f"{metric.title} in %")


def series_of(name: str, cells: Sequence[Cell]) -> list[Series]:
    """The measured values with their spread and, where there are any, the paper's."""
    spread = tuple(cell.spread or 0.0 for cell in cells) if any(cell.spread for cell in cells) else ()
    measured, papers = (tuple(getattr(cell, part) for cell in cells) for part in ("measured", "paper"))
    found = [Series(name, measured, spread=spread), Series(name, papers, paper=True)]
    return found if any(value is not None for value in papers) else found[:1]


def missing(made: Block, *runs: ModelRun) -> Block:
    """The block with what is not in it: methods that could not be fitted, images that could not be read."""
    notes, unreadable = [made.note], 0
    for run in runs:
        notes += [f"Left out: {label}: {reason}" for label, reason in run.left_out.items()]
        failures = {name: info.failures for name, info in run.sets.items() if info.failures} | dict(run.unreadable)
        for name, found in failures.items():
            image, reason = next(iter(found.items()))
            notes.append(
                f"{len(found)} image{'s' * (len(found) > 1)} of {name} could not be read, such as {image}: {reason}"
            )
        unreadable = sum(map(len, failures.values()))
    # An image that cannot be read is missing from every run: it is named once.
    return with_note(replace(made, note="", unreadable=unreadable), *dict.fromkeys(notes))


def table_of(
    title: str, runs: Sequence[ModelRun], table: str, place: published.Place | None, names: Mapping[str, str] = {}
) -> Block:
    """One table of one or several runs, with a note on everything that is missing from them; see `block`."""
    return missing(block(title, [row for run in runs for row in figures_of(run)], table, place, names), *runs)


def with_note(made: Block, *notes: str) -> Block:
    """The block with these lines below those that it has."""
    return replace(made, note="\n".join(filter(None, (made.note, *notes))))
