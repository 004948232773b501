"""The charts of studies, drawn from their plain data. Needs ``adascale[report]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adascale.bench.results import Kind
from adascale.paper.studies.base import Chart, Series
from adascale.report.charts import COLOURS, INK, Style, canvas, label, legend, styles, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ID = "id"  # a series of this name is drawn in the colour of ID


def draw(chart: Chart) -> Figure:
    """The chart as a figure."""
    look = _look(chart.series)
    figure, grid = canvas(1, 1, _size(chart))
    axes = grid[0][0]
    _KINDS[chart.kind](axes, chart, look)
    title(axes, label(chart.title, 40))
    lying = chart.kind in ("dots", "bars")  # the values run to the right
    axes.set(xlabel=chart.y if lying else chart.x, ylabel=chart.x if lying else chart.y)
    if chart.kind != "grid" and len(look) > 1:
        legend(figure, list(look), look)
    if chart.kind != "grid" and any(one.paper for one in chart.series):
        axes.set_title("hollow: the paper", loc="right", color=INK, size=8.5)
    return figure


def _size(chart: Chart) -> tuple[float, float]:
    if chart.kind in ("dots", "bars"):
        return 5.2, 1.1 + 0.2 * len(chart.labels)
    if chart.kind == "grid":
        return 1.4 + 0.75 * len(chart.labels), 1.0 + 0.32 * len(chart.series)
    return 5.2, 2.9


def _look(series: Sequence[Series]) -> dict[str, Style]:
    kinds: dict[str, Kind] = {one.name: "id" if one.name == ID else "near" for one in series}
    return styles(kinds)


def _values(series: Series) -> Any:
    return np.array([np.nan if value is None else value for value in series.y], dtype=np.float64)


def _lines(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    for one in chart.series:
        x, y = np.array(one.x or range(len(one.y)), dtype=np.float64), _values(one)
        style, marked = look[one.name], bool(chart.labels)
        if one.spread:
            low, high = y - np.array(one.spread), y + np.array(one.spread)
            low = low if np.nanmin(y) < 0 else low.clip(0)  # no band where no value can be
            axes.fill_between(x, low, high, color=style.colour, alpha=0.18, linewidth=0)
        axes.plot(
            x, y, color=style.colour, linewidth=1.0 if one.paper else 1.5, linestyle=(0, (3, 2)) if one.paper else "-",
            marker="o" if marked else None, markersize=5, markerfacecolor="none" if one.paper else style.colour,
        )  # fmt: skip
    if chart.labels:
        crowded = sum(len(text) + 2 for text in chart.labels) > 60
        axes.set_xticks(range(len(chart.labels)), [label(text, 18) for text in chart.labels])
        axes.tick_params(axis="x", rotation=30 if crowded else 0)
        axes.set_xlim(-0.4, len(chart.labels) - 0.6)
    elif chart.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")


def _rows(axes: Axes, chart: Chart, reach: float) -> None:
    """A row for each label, from the top."""
    axes.set_yticks(range(len(chart.labels)), [label(text, 28) for text in chart.labels])
    axes.set_ylim(len(chart.labels) - 1 + reach, -reach)


def _dots(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    for one in chart.series:
        style = look[one.name]
        axes.errorbar(
            _values(one), range(len(one.y)), xerr=np.array(one.spread) if one.spread else None, fmt="o", markersize=5,
            color=style.colour, markerfacecolor="none" if one.paper else style.colour, elinewidth=1,
        )  # fmt: skip
    _rows(axes, chart, 0.7)


def _bars(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    height = 0.8 / len(chart.series)
    for place, one in enumerate(chart.series):
        rows = np.arange(len(one.y)) - 0.4 + height * (place + 0.5)
        colour = look[one.name].colour
        axes.barh(rows, _values(one), 0.9 * height, facecolor="none" if one.paper else colour, edgecolor=colour)
    _rows(axes, chart, 0.6)


def _steps(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    for one in chart.series:
        colour = look[one.name].colour
        axes.stairs(_values(one), one.x, fill=True, color=colour, alpha=0.3, linewidth=0)
        axes.stairs(_values(one), one.x, color=colour, linewidth=1.3)


def _grid(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    """Every cell with its number; the paler, the lower."""
    values = np.stack([_values(one) for one in chart.series])
    low, high = np.nanmin(values), np.nanmax(values)
    shares = (values - low) / (high - low if high > low else 1)
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            depth = 0.08 + 0.5 * shares[row, column]
            axes.fill_between([column, column + 1], row, row + 1, color=COLOURS[1], alpha=depth, linewidth=0)
            axes.text(column + 0.5, row + 0.5, f"{value:.2f}", ha="center", va="center", color=INK, size=8)
    axes.set_xticks(np.arange(len(chart.labels)) + 0.5, [label(text, 18) for text in chart.labels])
    axes.set_yticks(np.arange(len(values)) + 0.5, [label(one.name, 28) for one in chart.series])
    axes.set(xlim=(0, values.shape[1]), ylim=(len(values), 0))
    axes.grid(visible=False)


_KINDS: Mapping[str, Callable[[Axes, Chart, Mapping[str, Style]], None]] = {
    "lines": _lines,
    "dots": _dots,
    "bars": _bars,
    "steps": _steps,
    "grid": _grid,
}
