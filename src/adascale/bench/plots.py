"""A benchmark's charts: score histograms, ROC curves, and what AdaSCALE sees inside the network.

Each function returns charts as plain data, which `adascale.report.charts.plot` draws. A set has the same colour in all
charts, and ID is blue. Drawing needs ``adascale[report]``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from adascale.bench.answer import deployed_chart, ranking
from adascale.bench.columns import Kind
from adascale.bench.diagnostics import mean_ratio
from adascale.bench.headline import by_auroc
from adascale.bench.results import ModelRun, Profile, Run
from adascale.core.errors import InputError
from adascale.maths import metrics
from adascale.report.charts import binned, finite, plot, styles
from adascale.report.document import FIGURE_FORMATS, Chart, Series, Style
from adascale.report.svg import figure_bytes

PANEL, WIDE = (3.5, 2.35), (4.6, 2.5)  # inches; wide where there are only one or two panels
POINTS = 200  # of a ROC curve
Curve = Literal["shift", "perturbed"]  # |a_eps - a|, a_eps
RANKS = "place in the order of the activations, in % of all"


def panel(count: int) -> tuple[float, float]:
    """The size of each of so many panels, which stand side by side."""
    return PANEL if count > 2 else WIDE


def kinds(run: ModelRun) -> dict[str, Kind]:
    """The kind of each set of the network, in their order."""
    return {name: info.kind for name, info in run.sets.items()}


def ood_sets(run: ModelRun) -> list[str]:
    """The OOD sets that have images."""
    return [name for name, info in run.sets.items() if info.kind in ("near", "far") and info.images]


def compared(run: ModelRun) -> list[str]:
    """The method shown, which is the deployed one, and the best; then SCALE and MSP up to three in all."""
    wanted = (run.shown, next(iter(by_auroc(run)[2]), ""), "scale", "msp")
    return [method for method in dict.fromkeys(wanted) if method in run.scores][:3]


def histograms(run: ModelRun, methods: Sequence[str], sets: Sequence[str] | None = None) -> list[Chart]:
    """The scores of ID against those of each OOD set (all, or ``sets``), for one method after the other.

    The axis covers the middle 99 % of all scores of the method, whichever sets are drawn.
    """
    chosen, look, known = list(sets) if sets is not None else ood_sets(run), styles(kinds(run)), _id(run)
    if not methods or not chosen:
        raise InputError("There is nothing to draw: at least one method and one OOD set with images are needed.")
    charts = []
    for method in methods:
        scores = _scores(run, method)
        (low, high), bins = binned(scores)
        top = 1.08 * max(0.01, *(height or 0.0 for one in bins.values() for height in one.y))
        for name in chosen:
            series = [replace(bins[one], style=look[one]) for one in (known, name)]
            title, note = name if len(methods) == 1 else f"{method}: {name}", metrics.auroc(scores[known], scores[name])
            charts.append(
                Chart(
                    "steps", title, series, x="score, middle 99 % (right: more OOD)", y="share of images",
                    note=f"AUROC {100 * note:.1f}", x_range=(low, high), y_range=(0, top), size=PANEL,
                )
            )  # fmt: skip
    return charts


def roc_curves(run: ModelRun, methods: Sequence[str]) -> list[Chart]:
    """The share of OOD caught against the share of ID flagged at every threshold, for one method after the other."""
    look, charts = styles(kinds(run)), []
    for method in methods:
        scores, series = _scores(run, method), []
        for name in ood_sets(run):
            flagged, caught = _roc(scores[_id(run)], scores[name])
            series.append(Series(name, caught, flagged, style=look[name]))
        x, y = "share of ID flagged (dashed: 95 % of OOD caught)", "share of OOD caught"
        charts.append(Chart("roc", method, series, x=x, y=y, size=(3.5, 3.75)))
    return charts


def _roc(id_scores: Tensor, ood_scores: Tensor) -> list[list[float]]:
    """The curve without its collinear points and, beyond ``POINTS``, thinned evenly along its length."""
    thresholds = torch.unique(torch.cat([id_scores, ood_scores]))
    above = [
        1 - torch.searchsorted(side.sort().values, thresholds).double() / len(side) for side in (id_scores, ood_scores)
    ]
    curve = torch.stack(above, dim=1)
    curve = torch.cat([curve.new_zeros(1, 2), curve.flip(0)])
    step = curve.diff(dim=0)
    turns = (step[1:, 0] * step[:-1, 1] - step[1:, 1] * step[:-1, 0]).abs() > 1e-12
    ends = torch.ones(1, dtype=torch.bool)
    curve = curve[torch.cat([ends, turns, ends])]
    if len(curve) > POINTS:
        length = torch.cat([torch.zeros(1), curve.diff(dim=0).norm(dim=1).cumsum(0)]).double()
        wanted = torch.linspace(0, float(length[-1]), POINTS, dtype=torch.float64)
        curve = curve[torch.unique(torch.searchsorted(length, wanted).clamp(max=len(curve) - 1))]
    found: list[list[float]] = curve.T.tolist()
    return found


def shift_curve(run: ModelRun, sets: Sequence[str] | None = None) -> list[Chart]:
    """How far activations move when the image is perturbed, ``|a_eps - a|``, from the strongest to the weakest.

    ID against each other set (all, or ``sets``): the mean over the images, and one standard deviation to each side.
    """
    return _curves(run, "shift", sets, r"shift $|a_\epsilon - a|$")


def perturbed_curve(run: ModelRun, sets: Sequence[str] | None = None) -> list[Chart]:
    """The activations of the perturbed images, ``a_eps``, in the order of the unperturbed; otherwise as the shift."""
    return _curves(run, "perturbed", sets, r"perturbed activation $a_\epsilon$")


def curve(profile: Profile, name: str, quantity: Curve, style: Style | None = None) -> Series:
    """Mean and deviation of the quantity by the rank of the activation."""
    mean, deviation = getattr(profile, f"{quantity}_mean"), getattr(profile, f"{quantity}_std")
    return Series(name, mean.tolist(), profile.ranks.tolist(), deviation.tolist(), style=style)


def _curves(run: ModelRun, quantity: Curve, sets: Sequence[str] | None, title: str) -> list[Chart]:
    (known, *others), look, charts = sets_with_profiles(run), styles(kinds(run)), []
    curves = {name: curve(profile, name, quantity, look.get(name)) for name, profile in run.profiles.items()}
    mean, deviation = (
        torch.tensor([getattr(one, part) for one in curves.values()], dtype=torch.float64) for part in ("y", "spread")
    )
    low = 0.0 if float(mean.min()) >= 0 else float((mean - deviation).min())
    high = float((mean + deviation).max())
    chosen = others if sets is None else list(sets)
    for name in chosen:
        first, last = min(curves[name].x), max(curves[name].x)
        charts.append(
            Chart(
                "lines", name, [curves[known], curves[name]], x=RANKS, y=title,
                log=first > 0 and last / first > 30,  # the strongest few percent are what counts
                x_range=(first, last), y_range=(low, high + 0.05 * (high - low) or 1.0),
                size=panel(len(chosen)),
            )
        )  # fmt: skip
    return charts


def q_ratios(run: ModelRun) -> list[Chart]:
    """``Q`` and ``Q'`` of each set: its mean over the mean of ID.

    Where ``Q`` is above 1, the set moves further than ID does; where ``Q'`` is, it gets the smaller percentile.
    """
    (known, *others), look, series = sets_with_profiles(run), styles(kinds(run)), []
    for name in others:
        own, reference = run.profiles[name], run.profiles[known]
        ratios = [mean_ratio(own.q, reference.q), mean_ratio(own.q_prime, reference.q_prime)]
        series.append(Series(name, ratios, style=look[name]))
    x, size = "mean of the set over mean of ID (line: as ID)", (3.9, 0.9 + 0.5 * len(others))
    return [Chart("ratios", "", series, ("Q", "Q\N{PRIME}"), x=x, size=size)]


def percentiles(run: ModelRun) -> list[Chart]:
    """How the percentile ``p`` that each image got is distributed in each set; a tick marks the median."""
    return _ridges(run, "percentile", "percentile p")


def ratios(run: ModelRun) -> list[Chart]:
    """How the ratio ``r``, which sets the scaling factor, is distributed in each set; a tick marks the median."""
    return _ridges(run, "ratio", "ratio r")


def _ridges(run: ModelRun, quantity: Literal["percentile", "ratio"], title: str) -> list[Chart]:
    names, look, series = sets_with_profiles(run), styles(kinds(run)), []
    values = {name: finite(getattr(run.profiles[name], quantity)) for name in names}
    (low, high), bins = binned(values)
    for name, drawn in values.items():
        middle = min(max(float(drawn.median()), low), high) if len(drawn) else None
        series.append(replace(bins[name], style=look[name], middle=middle))
    x, size = f"{title}, middle 99 % of all values", (3.9, 0.6 + 0.45 * len(series))
    return [Chart("ridges", "", series, x=x, x_range=(low, high), size=size)]


def heat_map(run: ModelRun, methods: Sequence[str] | None = None) -> list[Chart]:
    """The AUROC of every method (best first) on every OOD set, in percent."""
    chosen, names = list(by_auroc(run)[2]) if methods is None else list(methods), ood_sets(run)
    if not chosen or not names:
        return []
    series = []
    for method in chosen:
        scores = _scores(run, method)
        series.append(Series(method, [100 * metrics.auroc(scores[_id(run)], scores[name]) for name in names]))
    return [Chart("grid", "AUROC in percent", series, names)]


def inside(run: ModelRun) -> dict[str, list[Chart]]:
    """What AdaSCALE sees inside the network, by figure; nothing unless there are profiles of ID and of another set."""
    makers = (shift_curve, perturbed_curve, q_ratios, percentiles, ratios)
    known = [name == _id(run) for name in run.sets if name in run.profiles]
    return {make.__name__: make(run) for make in makers} if len(set(known)) == 2 else {}


def save_all(run: Run, folder: Path | str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write every figure of every network into the folder, as ``NETWORK-FIGURE.FORMAT``."""
    if not set(formats) <= set(FIGURE_FORMATS):
        raise InputError(f"formats={list(formats)}; each must be one of {', '.join(FIGURE_FORMATS)}.")
    folder, written, taken = Path(folder), list[Path](), set[str]()
    folder.mkdir(parents=True, exist_ok=True)
    for model in run.models:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", model.model).strip("._")[:80] or "network"
        name = next(slug for slug in (name, *(f"{name}_{turn}" for turn in range(2, 10**6))) if slug not in taken)
        taken.add(name)
        for title, (charts, columns) in _figures(run, model).items():
            for form in formats:
                path = folder / f"{name}-{title}.{form}"
                path.write_bytes(figure_bytes(plot(*charts, columns=columns), form))  # saving a figure changes it
                written.append(path)
    return written


def _figures(run: Run, model: ModelRun) -> dict[str, tuple[list[Chart], int]]:
    """The charts of each figure, and in how many columns they stand."""
    methods, sets, deployed = compared(model), ood_sets(model), deployed_chart(model)
    found: dict[str, tuple[list[Chart], int]] = {
        f"ranking-{kind}": ([chart], 1) for kind, chart in ranking(run, model).items()
    }
    if deployed is not None:
        found["deployed"] = [deployed], 1
    if methods and sets:
        found["heat-map"] = heat_map(model), 1
        found["histograms"] = histograms(model, methods), len(sets) if len(methods) > 1 else 3
        found["roc"] = roc_curves(model, methods), len(methods)
    return found | {name: (charts, 3) for name, charts in inside(model).items()}


def _scores(run: ModelRun, method: str) -> dict[str, Tensor]:
    if method not in run.scores:
        raise InputError(f"There are no scores of {method!r}; choose among {sorted(run.scores)}.")
    return {name: finite(values) for name, values in run.scores[method].items()}


def _id(run: ModelRun) -> str:
    return next(name for name, info in run.sets.items() if info.kind == "id")


def sets_with_profiles(run: ModelRun) -> list[str]:
    """The sets of which there are profiles: ID, then the others in their order; `InputError` without ID or others."""
    found = sorted((name for name in run.sets if name in run.profiles), key=lambda name: name != _id(run))
    if len(found) < 2 or found[0] != _id(run):
        raise InputError(f"Profiles of {sorted(run.profiles)}; ID and at least one other set are needed.")
    return found
