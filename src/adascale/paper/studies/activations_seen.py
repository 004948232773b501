"""The studies of the paper's plots: what AdaSCALE sees inside the network, and how far it separates the scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from adascale import detectors
from adascale.bench.diagnostics import mean_ratio
from adascale.bench.results import KINDS, USUAL, ModelRun, Profile
from adascale.bench.run import Entry
from adascale.core.errors import InputError
from adascale.paper.studies.base import Block
from adascale.paper.studies.build import missing
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.paper.studies.study import TEXTS, Study, figures_of
from adascale.report.charts import ID, limits, shares
from adascale.report.document import Cell, Chart, Column, Line, Series

_RANKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100)  # percent: the ranks that the table shows of each curve
_BINS = 40
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
    """A table with plots for each network."""

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        for subject in experiment.subjects:
            run = profiled_run(experiment, subject)
            yield missing(self.block(subject.name, run, profiled_sets(run)), run)

    @abstractmethod
    def block(self, title: str, run: ModelRun, names: Sequence[str]) -> Block:
        """The table and the plots of one network. names: the sets to compare with ID."""


@dataclass(frozen=True)
class Curves(ProfileStudy):
    """Mean and deviation over the images by the rank of the activation, strongest first.

    quantity: ``shift``, which is ``|a_eps - a|``, or ``perturbed``, which is ``a_eps``. The JSON file has every
    plotted point.
    """

    quantity: Literal["shift", "perturbed"] = "shift"
    symbol: str = "|a_eps - a|"

    def block(self, title: str, run: ModelRun, names: Sequence[str]) -> Block:
        columns = [Column(ID, self.symbol, ID, unit="activation")]
        for name in names:
            columns.append(Column(name, self.symbol, name, unit="activation"))
            columns.append(Column(f"{name}/id", "over ID", name, unit="ratio"))
        lines = [self._line(run.profiles, names, place) for place in _places(run.profiles[ID].ranks)]
        return Block(title, columns, lines, [self._chart(run, name) for name in names])

    def _curve(self, profile: Profile) -> tuple[Tensor, Tensor]:
        """Mean and deviation."""
        if self.quantity == "shift":
            return profile.shift_mean, profile.shift_std
        return profile.perturbed_mean, profile.perturbed_std

    def _line(self, profiles: Mapping[str, Profile], names: Sequence[str], place: int) -> Line:
        cells = {}
        for name in (ID, *names):
            mean, deviation = self._curve(profiles[name])
            cells[name] = Cell(float(mean[place]), spread=float(deviation[place]))
        for name in names:
            own, known = cells[name].measured, cells[ID].measured
            cells[f"{name}/id"] = Cell(own / known if own is not None and known else None)
        rank = float(f"{float(profiles[ID].ranks[place]):.2g}")
        return Line(f"at {rank:g} %", cells)

    def _chart(self, run: ModelRun, name: str) -> Chart:
        series = []
        for part in (ID, name):
            mean, deviation = self._curve(run.profiles[part])
            series.append(Series(part, mean.tolist(), run.profiles[part].ranks.tolist(), deviation.tolist()))
        x = "place in the order of the activations, in % of all"
        return Chart("lines", set_label(run, name), series, x=x, y=self.symbol, log=True)


def _places(ranks: Tensor) -> list[int]:
    """The points of the curves that are nearest to the ranks of the table."""
    nearest = (ranks[:, None] - torch.tensor(_RANKS, dtype=torch.float64)).abs().argmin(0)
    return sorted(set(nearest.tolist()))


@dataclass(frozen=True)
class Ratios(ProfileStudy):
    """``Q`` and ``Q'``: the mean over each set divided by the mean over ID."""

    def block(self, title: str, run: ModelRun, names: Sequence[str]) -> Block:
        columns = [Column(key, f"{symbol}_OOD / {symbol}_ID", unit="ratio") for key, symbol in _SYMBOLS.items()]
        lines = [Line(set_label(run, name), q_cells(run.profiles, name)) for name in names]
        series = [Series(symbol, [line.cells[key].measured for line in lines]) for key, symbol in _SYMBOLS.items()]
        labels = [line.label for line in lines]
        return Block(
            title, columns, lines, [Chart("bars", "Over ID", series, labels, y="mean of the set / mean of ID")]
        )


@dataclass(frozen=True)
class Separation(ProfileStudy):
    """The scores of ID and of each OOD set, by SCALE and by AdaSCALE-A."""

    def block(self, title: str, run: ModelRun, names: Sequence[str]) -> Block:
        names = [name for name in names if run.sets[name].kind != "shifted"]
        methods = [label for label in ("scale", _ADASCALE) if label in run.scores]
        rows = {(row.method, row.dataset): row for row in figures_of(run) if row.spectrum == "ood"}
        shown = {f"{method}.{figure.key}": (method, figure) for method in methods for figure in USUAL}
        columns = [Column(key, figure.title, method, hint=figure.hint) for key, (method, figure) in shown.items()]
        lines = []
        for name in names:
            shares_of = {key: getattr(rows[method, name], figure.key) for key, (method, figure) in shown.items()}
            lines.append(Line(set_label(run, name), {key: Cell(100 * share) for key, share in shares_of.items()}))
        return Block(title, columns, lines, [_histogram(run, method, name) for name in names for method in methods])


def _histogram(run: ModelRun, method: str, name: str) -> Chart:
    scores = run.scores[method]
    low, high = limits(list(scores.values()))
    edges = torch.linspace(low, high, _BINS + 1, dtype=torch.float64)
    series = [Series(part, shares(scores[part], edges).tolist(), edges.tolist()) for part in (ID, name)]
    return Chart("steps", f"{method}: {name}", series, x="score (right: more OOD)", y="share of images")


STUDIES: tuple[Study, ...] = (
    Curves(*TEXTS["shift"]),
    Curves(*TEXTS["perturbed-activations"], quantity="perturbed", symbol="a_eps"),
    Ratios(*TEXTS["q-ratio"]),
    Separation(*TEXTS["separation"]),
)
