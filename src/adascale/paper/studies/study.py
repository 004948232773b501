"""What every study is: a name, the question that it answers, and the tables that answer it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from adascale.bench import figures as bench
from adascale.bench.results import USUAL, ModelRun, Row, Spectrum
from adascale.paper import published
from adascale.paper.studies.base import Block, Result, has_paper
from adascale.paper.studies.build import block, missing
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.report.document import Column

Texts = tuple[str, str, str, str, str, str]
# The first six fields of every study of the package, by its name and in the order of the report
TEXTS: Mapping[str, Texts] = {
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
    uses_given: ClassVar[bool] = True  # whether the experiment's parameters of AdaSCALE count
    sensitivity: ClassVar[bool] = False  # whether AdaSCALE starts from the paper's sensitivity tables

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


def table_of(
    title: str,
    runs: Sequence[ModelRun],
    table: str,
    place: published.Place | None,
    rows: Mapping[str, str] | None = None,
) -> Block:
    """One table of one or several runs, with a note on everything that is missing from them; see `block`."""
    made = block(title, [row for run in runs for row in figures_of(run)], table, place, rows)
    for run in runs:
        made = missing(made, run)
    # An image that cannot be read is missing from every run: it is named once.
    return replace(made, note="\n".join(dict.fromkeys(made.note.splitlines())))


def with_note(made: Block, *notes: str) -> Block:
    """The block with these lines below those that it has."""
    return replace(made, note="\n".join(filter(None, (made.note, *notes))))
