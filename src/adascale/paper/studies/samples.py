"""How much ID data AdaSCALE needs, and its one knob tuned without OOD data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from adascale import detectors
from adascale.bench.figures import figures
from adascale.bench.results import Row
from adascale.bench.run import Job
from adascale.decision.tuning import GRIDS, Tuning
from adascale.detectors.adaptive import Adaptive
from adascale.paper.studies.base import Block
from adascale.paper.studies.build import block, missing
from adascale.paper.studies.measure import Variant, measure
from adascale.paper.studies.setting import METHODS, Name, Setting, Study, Subject
from adascale.report.document import Cell, Chart, Column, Series

SIZES = (10, 100, 1000, 5000)
DRAWS = 10


@dataclass(frozen=True)
class Samples(Study):
    """AdaSCALE-A fitted on random draws of the validation images: mean and deviation over the draws."""

    def blocks(self, setting: Setting) -> Iterator[Block]:
        for subject in setting.subjects:
            job = setting.job(subject)
            draws = _draws(len(job.extracted("val", job.images.val, ())), setting.seed)
            # Equal draws, such as those of all images, are measured once.
            labels = {rows: str(i) for i, rows in enumerate(dict.fromkeys(rows for _, rows in draws))}
            base = setting.base(subject)
            run = measure(job, [Variant(label, base, reference=rows) for rows, label in labels.items()])
            own: dict[str, list[Row]] = {}
            for row in figures(run, intervals=False):
                own.setdefault(row.method, []).append(row)
            rows = [
                replace(row, method=f"n={size}", model=f"draw {i}")
                for i, (size, drawn) in enumerate(draws)
                for row in own[labels[drawn]]
            ]
            place = None if setting.changed(subject) else setting.compared(subject)
            yield missing(block(subject.name, rows, self.name, place), run)

    def notes(self, setting: Setting) -> list[str]:
        return [
            *setting.starts(),
            f"Mean ± deviation over {DRAWS} draws without replacement from the validation images. Of all of them there "
            "is only one draw, so that its deviation is 0.",
        ]


def _draws(images: int, seed: int) -> list[tuple[int, tuple[int, ...]]]:
    """(size, rows) of every draw, the sizes in order."""
    sizes = [*(size for size in SIZES if size < images), images]
    orders = [torch.randperm(images, generator=torch.Generator().manual_seed(seed + turn)) for turn in range(DRAWS)]
    return [(size, tuple(sorted(order[:size].tolist()))) for size in sizes for order in orders]


@dataclass(frozen=True)
class OneKnob(Study):
    """``p_min`` = 60, ``k2`` = 5 %, and only ``p_max`` chosen, on outliers made from the validation images."""

    def blocks(self, setting: Setting) -> Iterator[Block]:
        for subject in setting.subjects:
            job = setting.job(subject)
            tunings = {name: _tuned(job, self._method(setting, name)) for name in METHODS}
            chosen = {name: replace(self._method(setting, name), **found.chosen) for name, found in tunings.items()}
            fixed = Variant("optfs", detectors.OptFS())
            run = measure(job, [fixed, *(Variant(name, method) for name, method in chosen.items())])
            names: dict[str, str] = {name: "" for name in METHODS if self._changed(setting, name)}
            made = block(subject.name, figures(run, intervals=False), self.name, setting.compared(subject), names)
            texts = [f"{name} {found}." for name, found in tunings.items()]
            made = missing(made, run)
            yield replace(made, note="\n".join(filter(None, (made.note, *texts))))
            yield self._by_p_max(setting, job, subject, tunings["adascale_a"])

    def _by_p_max(self, setting: Setting, job: Job, subject: Subject, tuning: Tuning) -> Block:
        """What the judge, who sees no OOD image, and the tested sets say about each value."""
        base = self._method(setting, "adascale_a")
        judged = {f"p_max={point['p_max']}": 100 * auroc for point, auroc in tuning.trials}
        points = {f"p_max={point['p_max']}": point for point in GRIDS["one-knob"]}
        run = measure(job, [Variant(label, replace(base, **point)) for label, point in points.items()])
        made = block(f"{subject.name}: adascale_a at each p_max", figures(run, intervals=False), "", None)
        column = Column("judge.auroc", "AUROC", "Made-up outliers", "high")
        lines = [replace(line, cells={column.key: Cell(judged.get(line.label)), **line.cells}) for line in made.lines]
        seen = Series("made-up outliers", [judged.get(line.label) for line in lines])
        charts: list[Chart] = [
            replace(chart, series=[*chart.series, seen]) if chart.title == "AUROC" else chart for chart in made.charts
        ]
        return replace(made, columns=[column, *made.columns], lines=lines, charts=charts)

    def _method(self, setting: Setting, name: Name) -> Adaptive:
        return METHODS[name](**{"k2": 5, **setting.given, "p_min": 60})

    def _changed(self, setting: Setting, name: Name) -> bool:
        """In anything but what is chosen."""
        own, known = (self._method(one, name) for one in (setting, setting.as_preset))
        return replace(own, p_max=known.p_max) != known

    def settings(self, setting: Setting, subject: Subject) -> dict[str, Any]:
        return self._method(setting, "adascale_a").parameters

    def notes(self, setting: Setting) -> list[str]:
        return [
            "No OOD image is used to choose p_max; the paper chooses on OOD validation images. p_max is chosen on a "
            "part of the validation images, and the method is then fitted on all of them."
        ]


def _tuned(job: Job, method: Adaptive) -> Tuning:
    return job.tune(method, list(GRIDS["one-knob"]), "self")


STUDIES: tuple[Study, ...] = (
    OneKnob(
        "one-knob",
        "One parameter to choose",
        "one_hyperparameter",
        "How good is AdaSCALE when only p_max is chosen, and that without OOD data?",
        "clean and one view; three kinds of outliers made from a part of the validation images",
    ),
    Samples(
        "n-val",
        "How many ID images are needed",
        "training_statistics",
        "How many ID images does AdaSCALE need, and how much does it matter which?",
        "clean and one view",
    ),
)
