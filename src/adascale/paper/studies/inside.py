"""The paper's figures: what AdaSCALE sees inside the network, and how it parts the scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from adascale import detectors
from adascale.bench.diagnostics import mean_ratio
from adascale.bench.figures import figures
from adascale.bench.results import KINDS, USUAL, ModelRun, Profile
from adascale.bench.run import Entry
from adascale.core.errors import InputError
from adascale.paper.studies.base import Block
from adascale.paper.studies.build import missing
from adascale.paper.studies.setting import Setting, Study, Subject
from adascale.report.charts import ID, limits, shares
from adascale.report.document import Cell, Chart, Column, Line, Series

_RANKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100)  # percent: where the table reads the curves
_BINS = 40
_SHOWN = "adascale_a"


def looked_into(setting: Setting, subject: Subject) -> ModelRun:
    """AdaSCALE-A with its profiles of every set, and SCALE."""
    entries = [Entry(_SHOWN, setting.base(subject)), Entry("scale", detectors.SCALE())]
    run = setting.job(subject, entries).run()
    if "id" not in run.profiles:
        raise InputError(
            f"{subject.name}: nothing to show: AdaSCALE-A left out ({run.left_out.get(_SHOWN, 'no perturbed view')})."
        )
    return run


def others(run: ModelRun) -> list[str]:
    """The sets to hold against ID."""
    return [name for name, info in run.sets.items() if info.kind != "id" and name in run.profiles]


def set_label(run: ModelRun, name: str) -> str:
    return f"{name} ({KINDS[run.sets[name].kind]})"


@dataclass(frozen=True)
class Curves(Study):
    """Mean and deviation over the images, by the place in the order of the activations, strongest first.

    quantity: ``shift``, ``|a_eps - a|``, or ``perturbed``, ``a_eps``. The JSON file has every plotted point.
    """

    quantity: Literal["shift", "perturbed"] = "shift"
    symbol: str = "|a_eps - a|"

    def blocks(self, setting: Setting) -> Iterator[Block]:
        for subject in setting.subjects:
            run = looked_into(setting, subject)
            names = others(run)
            columns = [Column(ID, self.symbol, ID, unit="activation")]
            for name in names:
                columns.append(Column(name, self.symbol, name, unit="activation"))
                columns.append(Column(f"{name}/id", "over ID", name, unit="ratio"))
            lines = [self._line(run.profiles, names, place) for place in _places(run.profiles[ID].ranks)]
            charts = [self._chart(run, name) for name in names]
            yield missing(Block(subject.name, columns, lines, charts), run)

    def _curve(self, profile: Profile) -> tuple[Tensor, Tensor]:
        """Mean and deviation."""
        if self.quantity == "shift":
            return profile.shift_mean, profile.shift_std
        return profile.perturbed_mean, profile.perturbed_std

    def _line(self, profiles: Mapping[str, Profile], names: list[str], place: int) -> Line:
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
            ranks = run.profiles[part].ranks.tolist()
            series.append(Series(part, mean.tolist(), ranks, deviation.tolist()))
        x = "place in the order of the activations, in % of all"
        return Chart("lines", set_label(run, name), series, x=x, y=self.symbol, log=True)

    def notes(self, setting: Setting) -> list[str]:
        return [
            "Mean ± deviation over the images, at places in the order of the unperturbed activations in percent of "
            "all: the first line is the strongest activation, 'at 1 %' the weakest of the strongest 1 %. The points "
            "between are in the JSON file."
        ]


def _places(ranks: Tensor) -> list[int]:
    """Where the curves come nearest to the ranks of the table."""
    nearest = (ranks[:, None] - torch.tensor(_RANKS, dtype=torch.float64)).abs().argmin(0)
    return sorted(set(nearest.tolist()))


@dataclass(frozen=True)
class Ratios(Study):
    """``Q`` and ``Q'``: the mean over a set over the mean over ID."""

    def blocks(self, setting: Setting) -> Iterator[Block]:
        columns = [
            Column("q", "Q_OOD / Q_ID", unit="ratio"),
            Column("q_prime", "Q'_OOD / Q'_ID", unit="ratio"),
        ]
        for subject in setting.subjects:
            run = looked_into(setting, subject)
            names = others(run)
            lines = [Line(set_label(run, name), q_cells(run.profiles, name)) for name in names]
            series = [Series(sign, [line.cells[key].measured for line in lines]) for key, sign in _SIGNS.items()]
            chart = Chart("bars", "Over ID", series, [line.label for line in lines], y="mean of the set / mean of ID")
            yield missing(Block(subject.name, columns, lines, [chart]), run)

    def notes(self, setting: Setting) -> list[str]:
        return ["Above 1, the strongest activations of the set move further than those of ID."]


_SIGNS: Mapping[Literal["q", "q_prime"], str] = {"q": "Q", "q_prime": "Q'"}


def q_cells(profiles: Mapping[str, Profile], name: str) -> dict[str, Cell]:
    """The ratios of one set."""
    return {key: Cell(mean_ratio(getattr(profiles[name], key), getattr(profiles[ID], key))) for key in _SIGNS}


@dataclass(frozen=True)
class Separation(Study):
    """The scores of ID against those of each OOD set, under SCALE and under AdaSCALE-A."""

    def blocks(self, setting: Setting) -> Iterator[Block]:
        for subject in setting.subjects:
            run = looked_into(setting, subject)
            names = [name for name in others(run) if run.sets[name].kind != "shifted"]
            methods = [label for label in ("scale", _SHOWN) if label in run.scores]
            rows = {(row.method, row.dataset): row for row in figures(run, intervals=False) if row.spectrum == "ood"}
            columns = [
                Column(f"{method}.{figure.key}", figure.title, method, hint=figure.hint)
                for method in methods
                for figure in USUAL
            ]
            lines = [
                Line(
                    set_label(run, name),
                    {
                        f"{method}.{figure.key}": Cell(100 * getattr(rows[method, name], figure.key))
                        for method in methods
                        for figure in USUAL
                    },
                )
                for name in names
            ]
            charts = [_histogram(run, method, name) for name in names for method in methods]
            yield missing(Block(subject.name, columns, lines, charts), run)

    def notes(self, setting: Setting) -> list[str]:
        return [
            "The histograms cover the middle 99 % of a method's scores; the share of images in each bin is in the JSON."
        ]


def _histogram(run: ModelRun, method: str, name: str) -> Chart:
    scores = run.scores[method]
    low, high = limits(list(scores.values()))
    edges = torch.linspace(low, high, _BINS + 1, dtype=torch.float64)
    series = [Series(part, shares(scores[part], edges).tolist(), edges.tolist()) for part in (ID, name)]
    return Chart("steps", f"{method}: {name}", series, x="score (right: more OOD)", y="share of images")


_ONE_VIEW = "none beyond the clean pass and one view"

STUDIES: tuple[Study, ...] = (
    Curves(
        "shift",
        "How far activations move",
        "the figure of activation shifts",
        "Do the strongest activations of OOD images move further under the perturbation than those of ID images?",
        _ONE_VIEW,
    ),
    Curves(
        "perturbed-activations",
        "Activations of the perturbed image",
        "the figure of perturbed activations",
        "Are the perturbed activations of ID images larger where the unperturbed ones are strongest?",
        _ONE_VIEW,
        "perturbed",
        "a_eps",
    ),
    Ratios(
        "q-ratio",
        "The shift of each set over that of ID",
        "the figure of Q_OOD / Q_ID",
        "How much larger is Q on each OOD set than on ID?",
        _ONE_VIEW,
    ),
    Separation(
        "separation",
        "How scores part",
        "the figure of score densities",
        "Do the scores of ID and OOD overlap less under AdaSCALE than under SCALE?",
        _ONE_VIEW,
    ),
)
