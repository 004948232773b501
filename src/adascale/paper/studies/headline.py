"""The comparisons of methods: the headline tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adascale import detectors
from adascale.bench.figures import figures
from adascale.bench.results import BOTH, USUAL, Row, Spectrum
from adascale.bench.run import Entry
from adascale.core.errors import InputError
from adascale.detectors.adaptive import Adaptive
from adascale.paper import figures as paper
from adascale.paper.studies.base import Block
from adascale.paper.studies.build import block, missing
from adascale.paper.studies.setting import METHODS, TEXT_K2, Name, Setting, Study, Subject
from adascale.report.document import Column

ALL = tuple(cls.name for cls in detectors.ALL)
PAPER = ("msp", "mls", "ebo", "react", "ash_b", "scale", "bfact", "lts", "optfs", "adascale_a", "adascale_l")


@dataclass(frozen=True)
class Comparison(Study):
    """Methods side by side: a block for each network, and mean and deviation where there are several.

    table: of the paper's figures. AdaSCALE has a line with the paper's setting for the network; with ``claim`` also one
    with the k2 of the paper's text, one with the defaults and one with ``p_max`` tuned, which the paper has no row for.
    """

    methods: tuple[str, ...] = ALL
    table: str = "main"
    figures: Sequence[Column] = USUAL
    spectrum: Spectrum = "ood"
    claim: bool = False
    mean_first: bool = False

    def blocks(self, setting: Setting) -> Iterator[Block]:
        images = setting.full if self.spectrum == "full" else setting.images
        rows: list[Row] = []
        made: list[Block] = []
        names: dict[str, str] = {}
        for subject in setting.subjects:
            lines = list(self.lines(setting, subject))
            names |= {entry.label: row for entry, row in lines}
            job = setting.job(subject, [entry for entry, _ in lines], images)
            run = job.run()
            rows += (own := figures(run, intervals=False))
            found = missing(self._block(subject.name, own, setting.compared(subject), names), run)
            tuned = (f"{label}: {tuning}." for label, tuning in job.tunings.items())
            made.append(replace(found, note="\n".join(filter(None, (found.note, *tuned)))))
        mean = f"mean and deviation over {len(setting.subjects)} networks"
        means = [self._block(mean, rows, setting.common_place(), names)] if len(setting.subjects) > 1 else []
        yield from (*means, *made) if self.mean_first else (*made, *means)

    def _block(self, title: str, rows: Sequence[Row], place: paper.Place | None, names: dict[str, str]) -> Block:
        return block(title, rows, self.table, place, names, self.figures, (self.spectrum,))

    def lines(self, setting: Setting, subject: Subject) -> Iterator[tuple[Entry, str]]:
        """The lines of a network, each with the paper's row."""
        for name in self.methods:
            adaptive = next((own for own in METHODS if own == name), None)
            if adaptive is None:
                yield Entry(name, detectors.get(name)()), name
            else:
                yield from self._settings(setting, subject, adaptive)

    def _settings(self, setting: Setting, subject: Subject, name: Name) -> Iterator[tuple[Entry, str]]:
        known, theirs, plain = setting.base(subject, name), setting.as_preset.base(subject, name), _plain(setting, name)
        if subject.place is not None:
            yield _line(name, "preset", known, theirs)
            if self.claim:
                yield _line(name, f"k2={TEXT_K2} %", replace(known, k2=TEXT_K2), replace(theirs, k2=TEXT_K2))
        if plain is not None and (subject.place is None or self.claim):
            yield Entry(name, plain), ""
        if plain is not None and self.claim:
            yield Entry(f"{name} (tuned)", plain, "self", frozenset({"p_min"})), ""

    def settings(self, setting: Setting, subject: Subject) -> dict[str, Any]:
        return {entry.label: entry.method.parameters for entry, _ in self.lines(setting, subject)}

    def notes(self, setting: Setting) -> list[str]:
        notes = [setting.full_note] if self.spectrum == "full" else []
        if self.claim:
            notes.append(
                "FPR@95 is the share of ID flagged where 95 % of the OOD is caught (OpenOOD and the paper); FPR@95-ID "
                "is the share of OOD accepted where 95 % of the ID is kept (ODIN, Energy, ReAct, ASH, LTS, OptFS). "
                "Methods are at their defaults but for the lines that say otherwise; (tuned): p_max, without OOD data. "
                "ASH in the paper is ash_b."
            )
        if self.claim and any(map(setting.compared, setting.subjects)):
            notes.append(
                "The paper's headline rows are those of settings with a k2 for each network (preset); its text says "
                f"that k2={TEXT_K2} % serves all. Its lines have the same figure of the paper beside them."
            )
        if self.claim and any(_plain(setting, name) is None for name in METHODS):
            notes.append("Without lines of the defaults and of tuning: what was given does not go with the defaults.")
        if self.mean_first and len(setting.subjects) == 1:
            notes.append("One network: there is no deviation. Give several, such as the seeds of one recipe.")
        return notes


def _plain(setting: Setting, name: Name) -> Adaptive | None:
    """With the defaults and what was given; None where they contradict each other."""
    try:
        return METHODS[name](**setting.given)
    except InputError:
        return None


def _line(name: str, words: str, method: Adaptive, theirs: Adaptive) -> tuple[Entry, str]:
    """A setting of the paper with the paper's row, which a changed one has not."""
    if method.parameters == theirs.parameters:
        return Entry(f"{name} ({words})", method), name
    return Entry(f"{name} ({words}, changed)", method), ""


STUDIES: tuple[Study, ...] = (
    Comparison(
        "main",
        "All methods",
        "main_imagenet_benchmark, ood_detection_comparison",
        "Which method tells OOD from ID best, on each network and on average?",
        "clean, and the views of AdaSCALE and ODIN; the training images",
        figures=BOTH,
        claim=True,
    ),
    Comparison(
        "cifar",
        "The mean over training seeds",
        "ood_detection_comparison",
        "Do the differences between methods outlast training the network again?",
        "clean and one view for each network; the training images",
        methods=PAPER,
        mean_first=True,
    ),
    Comparison(
        "fsood",
        "The full spectrum",
        "fsood",
        "Is ID under covariate shift kept as ID?",
        "clean and one view, also of the shifted ID images; the training images",
        methods=PAPER,
        table="fsood",
        spectrum="full",
    ),
    Comparison(
        "distance",
        "Methods that look at distances",
        "distance_based_comparison",
        "How does AdaSCALE compare with LINe, NNGuide and MDS?",
        "clean and one view; the training images",
        methods=("line", "nnguide", "mds", "adascale_a"),
        table="distance",
    ),
)
