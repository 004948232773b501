"""The studies of the paper's plots: what AdaSCALE sees inside the network, and how far it separates the scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch

from adascale import detectors
from adascale.bench import plots
from adascale.bench.columns import KINDS, USUAL
from adascale.bench.diagnostics import mean_ratio
from adascale.bench.results import ModelRun, Profile
from adascale.bench.run import Entry
from adascale.core.errors import InputError
from adascale.paper.studies.base import Block
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.paper.studies.study import TEXTS, Study, figures_of, missing
from adascale.report.charts import ID, binned
from adascale.report.document import Cell, Chart, Column, Line, Series

_RANKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100)  # percent: the ranks that the table shows of each curve
_ADASCALE = "adascale_a"
_SYMBOLS: Mapping[Literal["q", "q_prime"], str] = {"q": "Q", "q_prime": "Q'"}


def profiled_run(experiment: Experiment, subject: Subject) -> ModelRun:
    """AdaSCALE-A, with its profiles of every set, and SCALE."""
    entries = [Entry(_ADASCALE, experiment.adascale(subject)), Entry("scale", detectors.SCALE())]
    run = experiment.job(subject, entries).run()
    if "id" not in run.profiles:
        reason = run.left_out.get(_ADASCALE, "no perturbed view")
        raise InputError(f"{subject.name}: nothing to show: AdaSCALE-A left out ({reason}).")
    return run


def profiled_sets(run: ModelRun) -> list[str]:
    """The sets that are compared with ID."""
    return [name for name, info in run.sets.items() if info.kind != "id" and name in run.profiles]


def set_label(run: ModelRun, name: str) -> str:
    return f"{name} ({KINDS[run.sets[name].kind]})"


def q_cells(profiles: Mapping[str, Profile], name: str) -> dict[str, Cell]:
    """The ratios of ``Q`` and ``Q'`` of one set to those of ID."""
    return {key: Cell(mean_ratio(getattr(profiles[name], key), getattr(profiles[ID], key))) for key in _SYMBOLS}


@dataclass(frozen=True)
class ProfileStudy(Study):
    """A table with plots for each network. make: both, from its name, its run and the sets to compare with ID."""

    make: Callable[[str, ModelRun, Sequence[str]], Block] = field(kw_only=True)

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        for subject in experiment.subjects:
            run = profiled_run(experiment, subject)
            yield missing(self.make(subject.name, run, profiled_sets(run)), run)


def _curves(quantity: plots.Curve, symbol: str, title: str, run: ModelRun, names: Sequence[str]) -> Block:
    """Mean and deviation over the images by the rank of the activation, strongest first.

    quantity: ``shift``, which is ``|a_eps - a|``, or ``perturbed``, which is ``a_eps``. The JSON file has every
    plotted point.
    """
    columns = [Column(ID, symbol, ID, unit="activation")]
    for name in names:
        columns.append(Column(name, symbol, name, unit="activation"))
        columns.append(Column(f"{name}/id", "over ID", name, unit="ratio"))
    curves = {name: plots.curve(run.profiles[name], name, quantity) for name in (ID, *names)}
    ranks = run.profiles[ID].ranks
    nearest = (ranks[:, None] - torch.tensor(_RANKS, dtype=torch.float64)).abs().argmin(0)
    lines = [_curves_line(curves, place) for place in sorted(set(nearest.tolist()))]
    charts = [
        Chart("lines", set_label(run, name), [curves[ID], curves[name]], x=plots.RANKS, y=symbol, log=True)
        for name in names
    ]
    return Block(title, columns, lines, charts)


def _curves_line(curves: Mapping[str, Series], place: int) -> Line:
    """The curves at one of their points."""
    cells = {name: Cell(curve.y[place], spread=curve.spread[place]) for name, curve in curves.items()}
    known = cells[ID].measured
    for name in [name for name in curves if name != ID]:
        own = cells[name].measured
        cells[f"{name}/id"] = Cell(own / known if own is not None and known else None)
    rank = float(f"{curves[ID].x[place]:.2g}")
    return Line(f"at {rank:g} %", cells)


def _ratios(title: str, run: ModelRun, names: Sequence[str]) -> Block:
    """``Q`` and ``Q'``: the mean over each set divided by the mean over ID."""
    columns = [Column(key, f"{symbol}_OOD / {symbol}_ID", unit="ratio") for key, symbol in _SYMBOLS.items()]
    lines = [Line(set_label(run, name), q_cells(run.profiles, name)) for name in names]
    series = [Series(symbol, [line.cells[key].measured for line in lines]) for key, symbol in _SYMBOLS.items()]
    labels = [line.label for line in lines]
    return Block(title, columns, lines, [Chart("bars", "Over ID", series, labels, y="mean of the set / mean of ID")])


def _separation(title: str, run: ModelRun, names: Sequence[str]) -> Block:
    """The scores of ID and of each OOD set, by SCALE and by AdaSCALE-A."""
    names = [name for name in names if run.sets[name].kind != "shifted"]
    bins = {method: binned(run.scores[method])[1] for method in ("scale", _ADASCALE) if method in run.scores}
    rows = {(row.method, row.dataset): row for row in figures_of(run) if row.spectrum == "ood"}
    columns, lines, charts = [], [], []
    for method in bins:
        columns += [Column(f"{method}.{one.key}", one.title, method, hint=one.hint) for one in USUAL]
    for name in names:
        cells: dict[str, Cell] = {}
        for method, own in bins.items():
            cells |= {f"{method}.{one.key}": Cell(100 * getattr(rows[method, name], one.key)) for one in USUAL}
            pair, x, y = [own[ID], own[name]], "score (right: more OOD)", "share of images"
            charts.append(Chart("steps", f"{method}: {name}", pair, x=x, y=y))
        lines.append(Line(set_label(run, name), cells))
    return Block(title, columns, lines, charts)


STUDIES: tuple[Study, ...] = (
    ProfileStudy(*TEXTS["shift"], make=partial(_curves, "shift", "|a_eps - a|")),
    ProfileStudy(*TEXTS["perturbed-activations"], make=partial(_curves, "perturbed", "a_eps")),
    ProfileStudy(*TEXTS["q-ratio"], make=_ratios),
    ProfileStudy(*TEXTS["separation"], make=_separation),
)
