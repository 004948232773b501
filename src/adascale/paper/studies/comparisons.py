"""The studies that compare methods with each other: the paper's headline tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from adascale import detectors
from adascale.bench.columns import BOTH
from adascale.bench.run import Entry
from adascale.core.errors import InputError
from adascale.detectors.adaptive import Adaptive
from adascale.paper.studies.experiment import ADASCALE, TEXT_K2, Experiment, Subject
from adascale.paper.studies.study import TEXTS, Measured, NetworkTables, Study

ALL = tuple(cls.name for cls in detectors.ALL)
PAPER = ("msp", "mls", "ebo", "react", "ash_b", "scale", "bfact", "lts", "optfs", "adascale_a", "adascale_l")
_PRESET_NOTE = (
    "The paper's headline rows are those of settings with a k2 for each network (preset); its text says "
    f"that k2={TEXT_K2} % serves all. Its lines have the same figure of the paper beside them."
)
_NO_DEFAULTS_NOTE = "Without lines of the defaults and of tuning: what was given does not go with the defaults."
_ONE_NETWORK_NOTE = "One network: there is no deviation. Give several, such as the seeds of one recipe."


@dataclass(frozen=True)
class MethodComparison(NetworkTables):
    """Methods side by side: a table for each network, and mean and deviation where there are several.

    AdaSCALE has a line with the paper's parameters for the network. With ``claim`` it also has a line with the k2 of
    the paper's text, one with the defaults, and one with ``p_max`` tuned, which the paper has no row for.
    """

    methods: tuple[str, ...] = ALL
    claim: bool = False
    mean_title: ClassVar[str] = "mean and deviation over {} networks"

    def measured(self, experiment: Experiment, subject: Subject) -> Measured:
        lines = list(self.lines(experiment, subject))
        job = experiment.job(subject, [entry for entry, _ in lines], experiment.images_for(self.spectra))
        run = job.run()
        tuned = "\n".join(f"{label}: {tuning}." for label, tuning in job.tunings.items())
        return Measured(run, {entry.label: row for entry, row in lines}, tuned)

    def lines(self, experiment: Experiment, subject: Subject) -> Iterator[tuple[Entry, str]]:
        """The lines of a network, each with the name of the paper's row ("" for none)."""
        for name in self.methods:
            if name in ADASCALE:
                yield from self._adascale_lines(experiment, subject, name)
            else:
                yield Entry(name, detectors.get(name)()), name

    def _adascale_lines(self, experiment: Experiment, subject: Subject, name: str) -> Iterator[tuple[Entry, str]]:
        own, papers = (experiment.adascale(subject, name, plain=plain) for plain in (False, True))
        if subject.place is not None:
            yield _preset_line(name, "preset", own, papers)
            if self.claim:
                yield _preset_line(name, f"k2={TEXT_K2} %", replace(own, k2=TEXT_K2), replace(papers, k2=TEXT_K2))
        default = _default(experiment, name)
        if default is not None and (subject.place is None or self.claim):
            yield Entry(name, default), ""
        if default is not None and self.claim:
            yield Entry(f"{name} (tuned)", default, "self", frozenset({"p_min"})), ""

    def parameters(self, experiment: Experiment, subject: Subject) -> dict[str, Any]:
        return {entry.label: entry.method.parameters for entry, _ in self.lines(experiment, subject)}

    def notes(self, experiment: Experiment) -> list[str]:
        subjects = experiment.subjects
        told = (
            (_PRESET_NOTE, self.claim and any(map(experiment.compared, subjects))),
            (_NO_DEFAULTS_NOTE, self.claim and any(_default(experiment, name) is None for name in ADASCALE)),
            (_ONE_NETWORK_NOTE, self.mean_first and len(subjects) == 1),
        )
        return [
            *experiment.spectra_notes(self.spectra),
            *super().notes(experiment),
            *(note for note, holds in told if holds),
        ]


def _default(experiment: Experiment, name: str) -> Adaptive | None:
    """AdaSCALE with its defaults and the given parameters; None where they contradict each other."""
    try:
        return ADASCALE[name](**experiment.given)
    except InputError:
        return None


def _preset_line(name: str, words: str, own: Adaptive, papers: Adaptive) -> tuple[Entry, str]:
    """A line with parameters of the paper. Changed parameters have no row in the paper."""
    if own.parameters == papers.parameters:
        return Entry(f"{name} ({words})", own), name
    return Entry(f"{name} ({words}, changed)", own), ""


STUDIES: tuple[Study, ...] = (
    MethodComparison(*TEXTS["main"], figures=BOTH, claim=True),
    MethodComparison(*TEXTS["cifar"], methods=PAPER, table="main", mean_first=True),
    MethodComparison(*TEXTS["fsood"], methods=PAPER, spectra=("full",)),
    MethodComparison(*TEXTS["distance"], methods=("line", "nnguide", "mds", "adascale_a")),
)
