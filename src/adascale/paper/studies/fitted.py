"""What AdaSCALE is fitted with: how many ID images, and one parameter chosen without OOD data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from adascale import detectors
from adascale.bench.results import Row
from adascale.bench.run import Job
from adascale.decision.tuning import GRIDS, Tuning
from adascale.detectors.adaptive import Adaptive
from adascale.paper.studies.base import Block
from adascale.paper.studies.experiment import ADASCALE, Experiment, Subject
from adascale.paper.studies.study import TEXTS, Study, block, figures_of, missing, table_of, with_note
from adascale.paper.studies.variants import Variant, measure
from adascale.report.document import Cell, Column, Series

SIZES = (10, 100, 1000, 5000)
DRAWS = 10
_POINTS = GRIDS["one-knob"]


@dataclass(frozen=True)
class ValidationSize(Study):
    """AdaSCALE-A fitted on random draws of the validation images: mean and deviation over the draws."""

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        for subject in experiment.subjects:
            job = experiment.job(subject)
            draws = _draws(len(job.extracted("val", job.images.val, ())), experiment.seed)
            # Equal draws, such as those of all images, are measured once.
            labels = {indices: str(i) for i, indices in enumerate(dict.fromkeys(indices for _, indices in draws))}
            method = experiment.adascale(subject)
            run = measure(job, [Variant(label, method, indices) for indices, label in labels.items()])
            by_label: dict[str, list[Row]] = {}
            for row in figures_of(run):
                by_label.setdefault(row.method, []).append(row)
            rows = [
                replace(row, method=f"n={size}", model=f"draw {i}")
                for i, (size, indices) in enumerate(draws)
                for row in by_label[labels[indices]]
            ]
            place = None if experiment.changed(subject) else experiment.compared(subject)
            yield missing(block(subject.name, rows, self.name, place), run)

    def notes(self, experiment: Experiment) -> list[str]:
        return [*experiment.start_notes(), self.note]


def _draws(images: int, seed: int) -> list[tuple[int, tuple[int, ...]]]:
    """The size and the indices of every draw, in the order of the sizes."""
    sizes = [*(size for size in SIZES if size < images), images]
    orders = [torch.randperm(images, generator=torch.Generator().manual_seed(seed + turn)) for turn in range(DRAWS)]
    return [(size, tuple(sorted(order[:size].tolist()))) for size in sizes for order in orders]


@dataclass(frozen=True)
class OneKnob(Study):
    """``p_min`` = 60, ``k2`` = 5 %, and only ``p_max`` chosen, on outliers made from the validation images."""

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        methods = {name: _method(name, experiment.given) for name in ADASCALE}
        for subject in experiment.subjects:
            job = experiment.job(subject)
            tunings = {name: job.tune(method, list(_POINTS), "self") for name, method in methods.items()}
            chosen = [Variant(name, replace(method, **tunings[name].chosen)) for name, method in methods.items()]
            run = measure(job, [Variant("optfs", detectors.OptFS()), *chosen])
            rows = {name: "" for name, method in methods.items() if _changed(method, name)}
            made = table_of(subject.name, [run], self.name, experiment.compared(subject), rows)
            yield with_note(made, *(f"{name} {tuning}." for name, tuning in tunings.items()))
            yield _by_p_max(subject, job, methods["adascale_a"], tunings["adascale_a"])

    def parameters(self, experiment: Experiment, subject: Subject) -> dict[str, Any]:
        return _method("adascale_a", experiment.given).parameters


def _method(name: str, given: Mapping[str, Any]) -> Adaptive:
    return ADASCALE[name](**{"k2": 5, **given, "p_min": 60})


def _changed(method: Adaptive, name: str) -> bool:
    """Whether any parameter but ``p_max``, which is chosen, differs from the paper's."""
    papers = _method(name, {})
    return replace(method, p_max=papers.p_max) != papers


def _by_p_max(subject: Subject, job: Job, method: Adaptive, tuning: Tuning) -> Block:
    """AdaSCALE-A at each ``p_max``: the AUROC on made-up outliers, which decides the choice, and the tested sets."""
    judged = {f"p_max={point['p_max']}": 100 * auroc for point, auroc in tuning.trials}
    run = measure(job, [Variant(f"p_max={point['p_max']}", replace(method, **point)) for point in _POINTS])
    made = block(f"{subject.name}: adascale_a at each p_max", figures_of(run), "", None)
    column = Column("judge.auroc", "AUROC", "Made-up outliers", "high")
    lines = [replace(line, cells={column.key: Cell(judged.get(line.label)), **line.cells}) for line in made.lines]
    seen = Series("made-up outliers", [judged.get(line.label) for line in lines])
    charts = [
        replace(chart, series=[*chart.series, seen] if chart.title == "AUROC" else chart.series)
        for chart in made.charts
    ]
    return replace(made, columns=[column, *made.columns], lines=lines, charts=charts)


STUDIES: tuple[Study, ...] = (OneKnob(*TEXTS["one-knob"]), ValidationSize(*TEXTS["n-val"]))
