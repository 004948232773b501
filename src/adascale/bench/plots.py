"""A benchmark's charts: score histograms, ROC curves, and what AdaSCALE sees inside the network.

Each function returns charts as plain data, which `adascale.report.charts.plot` draws. A set has the same colour in all
charts, and ID is blue. Drawing needs ``adascale[report]``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from adascale.bench.diagnostics import mean_ratio
from adascale.bench.results import Kind, ModelRun, Run
from adascale.core.errors import InputError
from adascale.maths import metrics
from adascale.report.charts import finite, limits, plot, shares, styles
from adascale.report.document import Chart, Series
from adascale.report.svg import figure_bytes

PANEL = (3.5, 2.35)  # inches
BINS = 40
POINTS = 200  # of a ROC curve
FORMATS = ("png", "svg", "pdf")


def kinds(run: ModelRun) -> dict[str, Kind]:
    """The kind of each set of the network, in their order."""
    return {name: info.kind for name, info in run.sets.items()}


def ood_sets(run: ModelRun) -> list[str]:
    """The OOD sets that have images."""
    return [name for name, info in run.sets.items() if info.kind in ("near", "far") and info.images]


def compared(run: ModelRun) -> list[str]:
    """The method shown and, if they were run, SCALE and MSP to compare it with."""
    return [method for method in dict.fromkeys((run.shown, "scale", "msp")) if method in run.scores]


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
        low, high = limits(list(scores.values()))
        edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64)
        heights = {name: shares(values, edges) for name, values in scores.items()}
        top = 1.08 * max(0.01, *(float(part.max()) for part in heights.values()))
        for name in chosen:
            series = [Series(one, heights[one].tolist(), edges.tolist(), style=look[one]) for one in (known, name)]
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
    curves = {name: (part.ranks, part.shift_mean, part.shift_std) for name, part in run.profiles.items()}
    return _curves(run, curves, sets, r"shift $|a_\epsilon - a|$")


def perturbed_curve(run: ModelRun, sets: Sequence[str] | None = None) -> list[Chart]:
    """The activations of the perturbed images, ``a_eps``, in the order of the unperturbed; otherwise as the shift."""
    curves = {name: (part.ranks, part.perturbed_mean, part.perturbed_std) for name, part in run.profiles.items()}
    return _curves(run, curves, sets, r"perturbed activation $a_\epsilon$")


def _curves(
    run: ModelRun, curves: Mapping[str, tuple[Tensor, Tensor, Tensor]], sets: Sequence[str] | None, quantity: str
) -> list[Chart]:
    known, others = _profiled(run)
    look, charts = styles(kinds(run)), []
    positive = all(float(mean.min()) >= 0 for _, mean, _ in curves.values())
    low = 0.0 if positive else min(float((mean - std).min()) for _, mean, std in curves.values())
    high = max(float((mean + std).max()) for _, mean, std in curves.values())
    for name in others if sets is None else sets:
        series = []
        for part in (*known, name):
            ranks, mean, std = (values.tolist() for values in curves[part])
            series.append(Series(part, mean, ranks, std, style=look[part]))
        first, last = min(ranks), max(ranks)
        charts.append(
            Chart(
                "lines", name, series, x="place in the order of the activations, in % of all", y=quantity,
                log=first > 0 and last / first > 30,  # the strongest few percent are what counts
                x_range=(first, last), y_range=(low, high + 0.05 * (high - low) or 1.0), size=PANEL,
            )
        )  # fmt: skip
    return charts


def q_ratios(run: ModelRun) -> list[Chart]:
    """``Q`` and ``Q'`` of each set: its mean over the mean of ID. Above 1, the set moves further than ID does."""
    known, others = _profiled(run)
    look, profiles, series = styles(kinds(run)), run.profiles, []
    for name in others:
        ratios = [
            mean_ratio(
                getattr(profiles[name], key), torch.cat([getattr(profiles[one], key).flatten() for one in known])
            )
            for key in ("q", "q_prime")
        ]
        series.append(Series(name, ratios, style=look[name]))
    x, size = "mean of the set over mean of ID (line: as ID)", (3.9, 0.9 + 0.5 * len(others))
    return [Chart("ratios", "", series, ("Q", "Q\N{PRIME}"), x=x, size=size)]


def percentiles(run: ModelRun) -> list[Chart]:
    """How the percentile ``p`` that each image got is distributed in each set; a tick marks the median."""
    return _ridges(run, {name: part.percentile for name, part in run.profiles.items()}, "percentile p")


def ratios(run: ModelRun) -> list[Chart]:
    """How the exponent ``r`` of the scaling factor is distributed in each set; a tick marks the median."""
    return _ridges(run, {name: part.ratio for name, part in run.profiles.items()}, "ratio r")


def _ridges(run: ModelRun, values: Mapping[str, Tensor], quantity: str) -> list[Chart]:
    known, others = _profiled(run)
    look, (low, high), series = styles(kinds(run)), limits(list(values.values())), []
    edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64)
    for name in (*known, *others):
        drawn = finite(values[name])
        middle = min(max(float(drawn.median()), low), high) if len(drawn) else None
        series.append(Series(name, shares(drawn, edges).tolist(), edges.tolist(), style=look[name], middle=middle))
    x, size = f"{quantity}, middle 99 % of all values", (3.9, 0.6 + 0.45 * len(series))
    return [Chart("ridges", "", series, x=x, x_range=(low, high), size=size)]


def save_all(run: Run, folder: Path | str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write every figure of every network into the folder, as ``NETWORK-FIGURE.FORMAT``."""
    if not set(formats) <= set(FORMATS):
        raise InputError(f"formats={list(formats)}; each must be one of {', '.join(FORMATS)}.")
    folder, written, taken = Path(folder), list[Path](), set[str]()
    folder.mkdir(parents=True, exist_ok=True)
    for model in run.models:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", model.model).strip("._")[:80] or "network"
        name = next(slug for slug in (name, *(f"{name}_{turn}" for turn in range(2, 10**6))) if slug not in taken)
        taken.add(name)
        for title, (charts, columns) in _figures(model).items():
            for form in formats:
                path = folder / f"{name}-{title}.{form}"
                path.write_bytes(figure_bytes(plot(*charts, columns=columns), form))  # saving a figure changes it
                written.append(path)
    return written


def _figures(run: ModelRun) -> dict[str, tuple[list[Chart], int]]:
    """The charts of each figure, and in how many columns they stand."""
    methods, sets = compared(run), ood_sets(run)
    found: dict[str, tuple[list[Chart], int]] = {}
    if methods and sets:
        found["histograms"] = histograms(run, methods), len(sets) if len(methods) > 1 else 3
        found["roc"] = roc_curves(run, methods), len(methods)
    for make in (shift_curve, perturbed_curve, q_ratios, percentiles, ratios) if len(run.profiles) > 1 else ():
        found[make.__name__] = make(run), 3
    return found


def _scores(run: ModelRun, method: str) -> dict[str, Tensor]:
    if method not in run.scores:
        raise InputError(f"There are no scores of {method!r}; choose among {sorted(run.scores)}.")
    return {name: finite(values) for name, values in run.scores[method].items()}


def _id(run: ModelRun) -> str:
    return next(name for name, info in run.sets.items() if info.kind == "id")


def _profiled(run: ModelRun) -> tuple[list[str], list[str]]:
    """The ID sets and the others of which there are profiles, in the order of the sets."""
    found = [(name, kind == "id") for name, kind in kinds(run).items() if name in run.profiles]
    known, others = ([name for name, is_id in found if is_id == side] for side in (True, False))
    if not known or not others:
        raise InputError(f"Profiles of {sorted(run.profiles)}; ID and at least one other set are needed.")
    return known, others
