"""Two parameters at a time, and the validation grid over four: do the best values depend on each other?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from adascale.core.errors import InputError
from adascale.decision.tuning import Judge
from adascale.paper import published
from adascale.paper.studies.base import Block
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.paper.studies.study import TEXTS, Study, table_of
from adascale.paper.studies.variants import Bases, Variant, Variants, compared_variants, measure
from adascale.report.document import Cell, Chart, Column, Line, Series

Grid = Mapping[str, tuple[float, ...]]  # values by the paper's symbol
_P_MAX = (85, 90, 95)
# The paper's symbol -> our parameter and the factor from its unit to ours, where they differ
_FIELDS: Mapping[str, tuple[str, float]] = {"lambda": ("lam", 1), "o": ("fraction", 0.01)}
_GRIDS: tuple[Grid, ...] = (
    {"lambda": (0.1, 1, 10, 100), "p_max": _P_MAX},
    {"k1": (1, 5, 10, 50, 100), "p_max": _P_MAX},
    {"k1": (1, 5, 10, 50, 100), "lambda": (0.1, 1, 10, 100)},
)
_VALIDATION: Grid = {"epsilon": (0.1, 0.5, 1), "lambda": (1, 10, 20), "o": (2, 5, 10), "p_max": (80, 85, 90)}
_CONTRADICTED = published.Place("imagenet", "resnet-50")


@dataclass(frozen=True)
class Joint(Study):
    """A table for each grid of the paper and each network."""

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        for subject in experiment.subjects:
            for grid in _GRIDS:
                yield _tested(experiment, subject, grid)
            yield _validated(experiment, subject, _VALIDATION)

    def notes(self, experiment: Experiment) -> list[str]:
        known = any(experiment.compared(subject) == _CONTRADICTED for subject in experiment.subjects)
        return [*experiment.start_notes(self.sensitivity), *([self.note] if known else [])]


def _points(grid: Grid) -> dict[str, dict[str, Any]]:
    """The parameters of each point of the grid by its label."""
    found, fields = {}, {name: _FIELDS.get(name, (name, 1)) for name in grid}
    for values in product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        label = " ".join(f"{name}={value:g}" for name, value in point.items())
        found[label] = {field: point[name] * factor for name, (field, factor) in fields.items()}
    return found


def _variants(grid: Grid) -> Variants:
    """AdaSCALE-A at each point of the grid, but for a ``p_max`` below ``p_min``."""

    def variants(bases: Bases) -> list[Variant]:
        base, points = bases("adascale_a"), _points(grid)
        fitting = {label: point for label, point in points.items() if point.get("p_max", base.p_max) >= base.p_min}
        return [Variant(label, replace(base, **point)) for label, point in fitting.items()]

    return variants


def _tested(experiment: Experiment, subject: Subject, grid: Grid) -> Block:
    """The grid on the tested sets."""
    variants, rows = compared_variants(experiment, subject, _variants(grid), sensitivity=True)
    run = measure(experiment.job(subject), variants)
    title = f"{subject.name}: {' and '.join(grid)}"
    made = table_of(title, [run], "joint", experiment.compared(subject), rows)
    return replace(made, charts=[_chart(made, grid, column) for column in made.columns if column.title == "AUROC"])


def _chart(made: Block, grid: Grid, column: Column) -> Chart:
    """A grid of cells: the second half of the parameters to the right, the first half downwards."""
    names, half = list(grid), len(grid) // 2
    down, right = (list(_points({name: grid[name] for name in part})) for part in (names[:half], names[half:]))
    values = {line.label: line.cells[column.key].measured for line in made.lines if column.key in line.cells}
    rows = [Series(first, [values.get(f"{first} {second}") for second in right]) for first in down]
    return Chart("grid", f"{column.group} {column.title}", rows, right)


def _validated(experiment: Experiment, subject: Subject, grid: Grid) -> Block:
    """The grid on validation images alone: OOD-val where the suite has it, else outliers made from ID images."""
    base, column = experiment.adascale(subject, sensitivity=True), Column("val.auroc", "AUROC", "Validation", "high")
    variants, rows = compared_variants(experiment, subject, _variants(grid), sensitivity=True)
    points = {variant.label: _points(grid)[variant.label] for variant in variants}
    judge: Judge = "ood" if experiment.images.ood_val else "self"
    title = f"{subject.name}: {', '.join(grid)} on validation images"
    try:
        tuning = experiment.job(subject).tune(base, list(points.values()), judge)
    except InputError as error:
        return Block(title, [column], [], note=f"Left out: {error}")
    found = {tuple(point.items()): 100 * auroc for point, auroc in tuning.trials}
    lines = []
    for label, point in points.items():
        known = published.figure("joint", experiment.compared(subject), rows[label], "val")
        cell = Cell(found.get(tuple(point.items())), None if known is None else known.auroc)
        lines.append(Line(label, {column.key: cell}))
    made = Block(title, [column], lines, note=f"Judged by {tuning.judged_by}.")
    return replace(made, charts=[_chart(made, grid, column)])


STUDIES: tuple[Study, ...] = (Joint(*TEXTS["joint"], sensitivity=True),)
