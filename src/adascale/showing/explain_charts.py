"""The charts of an explanation: activations by rank, the statistic among the reference, the ratio, the score."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from adascale.decision.explaining import Explanation
from adascale.decision.tracing import Trace
from adascale.maths.activations import Ranking
from adascale.maths.conformal import Calibration
from adascale.report.charts import COLOURS, ID_COLOUR, binned, finite, limits
from adascale.report.document import Chart, Series, Style

SIZE = (4.6, 2.7)
_POINTS = 200  # of a curve
_CALIBRATION, _SCORED, _IMAGE = "calibration images", "scored images", "this image"
_STYLES = {_CALIBRATION: Style(ID_COLOUR), _SCORED: Style(COLOURS[0])}


def charts(found: Explanation) -> dict[str, Chart]:
    """Every chart that there is something to draw of, by a description."""
    made = {"The score among those of the calibration images": score_chart(found.calibration, found.score)}
    if found.members:
        made["What each member adds to the score"] = member_chart(found)
    if found.trace is not None:
        made["Activations before and after the pixels are moved, the strongest first"] = activation_chart(found.trace)
        made["The statistic of this image among those of the reference images"] = reference_chart(found.trace)
        made["The ratio r of this image for every percentile"] = ratio_chart(found.trace)
    return made


def activation_chart(trace: Trace) -> Chart:
    """``a`` and ``a_eps`` by rank; lines mark those that make ``Q`` and ``C_o``."""
    count = min(len(trace.activations), max(60, 3 * trace.k2))
    ranks = [float(rank) for rank in range(1, count + 1)]
    series = [
        Series("a, as it is", trace.activations[:count].double().tolist(), ranks, style=Style(ID_COLOUR)),
        Series("a_ε, perturbed", trace.perturbed[:count].double().tolist(), ranks, style=Style(COLOURS[0])),
    ]
    marks = {f"Q: first {trace.k1}": trace.k1 + 0.5, f"C_o: first {trace.k2}": trace.k2 + 0.5}
    return Chart(
        "lines", "Activations by rank", series, x="rank, the strongest first", y="activation", marks=marks,
        x_range=(0.5, count + 0.5), size=SIZE,
    )  # fmt: skip


def reference_chart(trace: Trace) -> Chart:
    """The eCDF ``F`` of the reference, and where the image lies."""
    known = trace.reference.double()
    n = len(known)
    x = known.repeat_interleave(2).tolist()
    y = [place / n for rank in range(n) for place in (rank, rank + 1)]
    low, high = min(float(known[0]), trace.statistic), max(float(known[-1]), trace.statistic)
    room = 0.06 * (high - low) or 1.0
    series = [Series("reference", [0.0, *y, 1.0], [low - room, *x, high + room], style=Style(ID_COLOUR))]
    symbol = "Q'" if trace.method.statistic in ("q_prime", "q_top") else trace.method.statistic
    return Chart(
        "lines", f"{symbol} among the {n} reference images", series, x=f"{symbol} (more: moves further)",
        y="F, share at most as large", x_range=(low - room, high + room), y_range=(-0.03, 1.06), size=SIZE,
        marks={f"this image: {trace.statistic:.4g}, F = {trace.share:.3g}": trace.statistic},
    )  # fmt: skip


def ratio_chart(trace: Trace) -> Chart:
    """``r`` over the percentile, and where this image got it; of several pairs of percentiles, their mean ``r``."""
    low = min(one.p_min for one in trace.scalings)
    high = max(one.p_max for one in trace.scalings)
    low, high = (low, high) if high > low else (low - 1, high + 1)
    grid = torch.linspace(low, high, _POINTS, dtype=torch.float64)
    ranking, alone = Ranking(trace.activations[None]), len(trace.scalings) == 1
    ratios = [float(ranking.ratio_above(p[None].numpy())[0]) for p in grid]
    return Chart(
        "lines", "Ratio by percentile", [Series("r", ratios, grid.tolist(), style=Style(ID_COLOUR))],
        x="percentile p", y="r, all over the k strongest", x_range=(low, high), size=SIZE,
        marks={f"this image: p = {trace.percentile:.4g}, r = {trace.ratio:.4g}": trace.percentile} if alone else {},
        note="" if alone else f"mean of {len(trace.scalings)} pairs: r = {trace.ratio:.4g}",
    )  # fmt: skip


def member_chart(found: Explanation) -> Chart:
    """What each member adds, beside what it adds to an in-distribution image on average."""
    series = [
        Series(_IMAGE, [one.adds for one in found.members], style=Style(COLOURS[0])),
        Series("usual for ID", [one.usual for one in found.members], style=Style(ID_COLOUR)),
    ]
    names = [one.name for one in found.members]
    size = (4.6, 1.3 + 0.35 * len(names))
    return Chart("bars", "What each member adds", series, names, y="adds to the score", size=size)


def score_chart(calibration: Calibration, score: float | None = None, others: Tensor | None = None) -> Chart:
    """The histogram of the calibration scores with the threshold, and the score of an image or those of many."""
    values = {_CALIBRATION: finite(calibration.scores)}
    if others is not None:
        values[_SCORED] = finite(others)
    low, high = limits(list(values.values()))
    shown = [value for value in (calibration.threshold, score) if value is not None and math.isfinite(value)]
    low, high = min(low, *shown), max(high, *shown)
    room = 0.04 * (high - low) or 1.0
    ends, bins = binned(values, (low - room, high + room))
    series = [replace(one, style=_STYLES[name]) for name, one in bins.items()]
    marks = {f"threshold τ = {calibration.threshold:.4g}": calibration.threshold}
    if score is not None:
        marks = {f"this image: {score:.4g}": score, **marks}
    title = "Scores" if score is None else "The score and the threshold"
    x = "score (right: more out-of-distribution)" if others is None else "score, middle 99 % (right: more OOD)"
    return Chart("steps", title, series, x=x, y="share of images", marks=marks, x_range=ends, size=SIZE)
