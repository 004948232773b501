"""AdaSCALE with one parameter to choose, and that without OOD data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from adascale import detectors
from adascale.bench.run import Job
from adascale.decision.tuning import GRIDS, Tuning
from adascale.detectors.adaptive import Adaptive
from adascale.paper.studies.base import Block
from adascale.paper.studies.build import block
from adascale.paper.studies.experiment import ADASCALE, AdaScaleName, Experiment, Subject
from adascale.paper.studies.study import TEXTS, Study, figures_of, table_of, with_note
from adascale.paper.studies.variants import Variant, measure
from adascale.report.document import Cell, Column, Series

_POINTS = GRIDS["one-knob"]


@dataclass(frozen=True)
class OneKnob(Study):
    """``p_min`` = 60, ``k2`` = 5 %, and only ``p_max`` chosen, on outliers made from the validation images."""

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        given = experiment.given
        for subject in experiment.subjects:
            job = experiment.job(subject)
            tunings = {name: job.tune(_method(name, given), list(_POINTS), "self") for name in ADASCALE}
            chosen = [Variant(name, replace(_method(name, given), **tunings[name].chosen)) for name in ADASCALE]
            run = measure(job, [Variant("optfs", detectors.OptFS()), *chosen])
            rows: dict[str, str] = {name: "" for name in ADASCALE if _changed(name, given)}
            made = table_of(subject.name, [run], self.name, experiment.compared(subject), rows)
            yield with_note(made, *(f"{name} {tuning}." for name, tuning in tunings.items()))
            yield _by_p_max(subject, job, _method("adascale_a", given), tunings["adascale_a"])

    def parameters(self, experiment: Experiment, subject: Subject) -> dict[str, Any]:
        return _method("adascale_a", experiment.given).parameters


def _method(name: AdaScaleName, given: Any) -> Adaptive:
    return ADASCALE[name](**{"k2": 5, **given, "p_min": 60})


def _changed(name: AdaScaleName, given: Any) -> bool:
    """Whether any parameter but ``p_max``, which is chosen, differs from the paper's."""
    papers = _method(name, {})
    return replace(_method(name, given), p_max=papers.p_max) != papers


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


STUDIES: tuple[Study, ...] = (OneKnob(*TEXTS["one-knob"]),)
