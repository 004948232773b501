"""Charts drawn with matplotlib: their style, their axes, and every kind of `Chart`. Needs ``adascale[report]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.report.document import Chart, Series, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#22272d"  # text and axes; an HTML page puts its own text colour in its place
# The palette of Okabe and Ito, which colour-blind readers can tell apart. Yellow and black are left out: one of the two
# is invisible on a light or on a dark page.
ID_COLOUR = "#0072b2"
COLOURS = ("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8f98")
DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1.2)))
ID = "id"  # a series of this name is drawn in the colour of the ID images
BINS = 40  # of a histogram
TAIL = 0.005  # the share of all values that is not drawn on either side: scores have long tails
TICKS = (0, 0.2, 0.4, 0.6, 0.8, 1)


def styles(kinds: Mapping[str, str]) -> dict[str, Style]:
    """The style of each set, by its kind: ID is blue, then come the OOD sets, then shifted ID, in the order given."""
    found = {name: Style(ID_COLOUR) for name, kind in kinds.items() if kind == "id"}
    others = sorted((name for name, kind in kinds.items() if kind != "id"), key=lambda name: kinds[name] == "shifted")
    for place, name in enumerate(others):
        turn, colour = divmod(place, len(COLOURS))
        found[name] = Style(COLOURS[colour], DASHES[turn % len(DASHES)])
    return found


def printable(text: str) -> str:
    """The text with control characters, lone surrogates and the like in Python's escaped notation."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def label(text: str, length: int = 30) -> str:
    """A name for a plot: printable, shortened in the middle, and with dollars that do not start a formula."""
    text = printable(text)
    text = text if len(text) <= length else f"{text[: length // 2]}…{text[1 + length // 2 - length :]}"
    return text.replace("$", r"\$")


def finite(values: Tensor) -> Tensor:
    """The values that can be drawn, as float64 on the CPU."""
    values = torch.as_tensor(values).detach().cpu().double().flatten()
    return values[values.isfinite()]


def limits(values: Sequence[Tensor]) -> tuple[float, float]:
    """The range of all values without the tails; it is never empty."""
    union = torch.cat([finite(part) for part in values]).sort().values
    if not len(union):
        return 0.0, 1.0
    low, high = (float(union[round(share * (len(union) - 1))]) for share in (TAIL, 1 - TAIL))
    return (low, high) if high - low > 1e-9 * max(1.0, abs(low)) else (low - 0.5, high + 0.5)


def binned(
    values: Mapping[str, Tensor], ends: tuple[float, float] | None = None
) -> tuple[tuple[float, float], dict[str, Series]]:
    """The range of all values without the tails, and for each name a histogram over it: the share in each bin.

    ends: another range.
    """
    ends = ends or limits(list(values.values()))
    edges, found = torch.linspace(*ends, BINS + 1, dtype=torch.float64), {}
    for name, part in values.items():
        drawn = finite(part)
        found[name] = Series(name, (torch.histogram(drawn, edges).hist / max(1, len(drawn))).tolist(), edges.tolist())
    return ends, found


def plot(*charts: Chart, columns: int = 1) -> Figure:
    """The charts as panels of one figure, with one legend; all panels have the size of the first."""
    if not charts:
        raise InputError("There is nothing to draw: give at least one chart.")
    known = styles({one.name: "id" if one.name == ID else "near" for chart in charts for one in chart.series})
    look = {one.name: one.style or known[one.name] for chart in charts for one in chart.series}
    columns = min(columns, len(charts))
    figure, panels = _canvas(-(-len(charts) // columns), columns, charts[0].size or _size(charts[0]))
    for place, (axes, chart) in enumerate(zip(panels, charts, strict=False)):
        _KINDS[chart.kind](axes, chart, look)
        _finish(axes, chart, first=place % columns == 0)
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    named = charts[0].kind in _NAMED_ROWS or set(look) == set(charts[0].labels)  # beside the axis
    if charts[0].kind == "roc" or (not named and len(look) > 1):
        _legend(figure, look)
    return figure


def _size(chart: Chart) -> tuple[float, float]:
    if chart.kind in ("dots", "bars"):
        return 5.2, 1.1 + 0.2 * len(chart.labels)
    if chart.kind == "grid":
        return 1.4 + 0.75 * len(chart.labels), 1.0 + 0.32 * len(chart.series)
    return 5.2, 2.9


def _canvas(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    optional("matplotlib.figure", "report")
    from adascale.report.drawn import Drawn

    figure = Drawn(figsize=(columns * size[0], rows * size[1]), layout="constrained", facecolor="white")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        axes.set_facecolor("none")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set(color=INK, alpha=0.5, linewidth=0.7)
        axes.tick_params(which="both", colors=INK, labelsize=8, width=0.7, length=3)
        axes.tick_params(which="minor", length=1.5)
        axes.grid(color=INK, alpha=0.12, linewidth=0.6)
        axes.set_axisbelow(True)
        for axis in (axes.xaxis, axes.yaxis):
            axis.label.set(color=INK, size=8.5)
            axis.get_offset_text().set(color=INK, size=8)
        axes.xaxis.set_major_locator(optional("matplotlib.ticker", "report").MaxNLocator(5))
    return figure, panels


def _finish(axes: Axes, chart: Chart, first: bool) -> None:
    """Title, names and ranges of the axes. Only the first panel of a row names its vertical axis."""
    paper = chart.kind != "grid" and any(one.paper for one in chart.series)
    note = chart.note or ("hollow: the paper" if paper else "")
    width = (chart.size or _size(chart))[0]
    axes.set_title(
        label(chart.title, 24 if chart.note else int(7.8 * width)), loc="left", color=INK, size=9.5, weight="bold"
    )
    axes.set_title(note, loc="right", color=INK, size=8.5)
    lying = chart.kind in ("dots", "bars")  # the values run to the right
    x, y = (chart.y, chart.x) if lying else (chart.x, chart.y)
    axes.set(xlabel=x, ylabel=y if first else "")
    if chart.x_range:
        axes.set_xlim(chart.x_range)
    if chart.y_range:
        axes.set_ylim(chart.y_range)
    if chart.marks:
        _marks(axes, chart.marks)


def _marks(axes: Axes, marks: Mapping[str, float]) -> None:
    """Vertical lines, each with its name beside it: on the side with more room, and every next one a line lower."""
    low, high = axes.get_xlim()
    middle = (low * high) ** 0.5 if axes.get_xscale() == "log" else (low + high) / 2
    axes.set_xlim(low, high)
    for place, (name, x) in enumerate(marks.items()):
        drawn, right = min(max(x, low), high), x <= middle  # a value beyond the axis stands at its end
        axes.axvline(drawn, color=INK, linewidth=1.1, linestyle=(0, (4, 2)) if place else "solid")
        axes.annotate(
            label(name, 40), (drawn, 1), (4 if right else -4, -3 - 11 * place), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="left" if right else "right", va="top", color=INK, size=8,
        )  # fmt: skip


def _legend(figure: Figure, look: Mapping[str, Style]) -> None:
    """The names of the series below all panels, where they hide nothing, in as many columns as fit."""
    line = optional("matplotlib.lines", "report").Line2D
    handles = [line([], [], color=style.colour, linestyle=style.dashes, linewidth=2.5) for style in look.values()]
    texts = [label(name) for name in look]
    fitting = int(72 * figure.get_figwidth() / (5.2 * max(map(len, texts)) + 30))
    columns = min(len(texts), max(1, fitting))
    figure.set_figheight(figure.get_figheight() + 0.17 * (-(-len(texts) // columns) - 1))  # the panels keep their size
    box = figure.legend(
        handles, ["-"] * len(handles), loc="outside lower center", ncols=columns,
        frameon=False, fontsize=8.5, labelcolor=INK, handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip
    for entry, text in zip(box.get_texts(), texts, strict=True):
        entry.set_text(text)  # set afterwards: matplotlib hides a name that begins with an underscore


def _values(series: Series) -> Any:
    return np.array([np.nan if value is None else value for value in series.y], dtype=np.float64)


def _lines(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    for one in chart.series:
        x, y = np.array(one.x or range(len(one.y)), dtype=np.float64), _values(one)
        style, marked = look[one.name], bool(chart.labels)
        if one.spread:
            low, high = y - np.array(one.spread), y + np.array(one.spread)
            low = low if np.nanmin(y) < 0 else low.clip(0)  # the band stays where values can be
            axes.fill_between(x, low, high, color=style.colour, alpha=0.18, linewidth=0)
        axes.plot(
            x, y, color=style.colour, linewidth=1.0 if one.paper else 1.5,
            linestyle=(0, (3, 2)) if one.paper else style.dashes,
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
        axes.xaxis.set_minor_formatter("")


def _roc(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    _lines(axes, chart, look)
    axes.plot([0, 1], [0, 1], color=INK, alpha=0.35, linewidth=0.8)
    axes.axhline(0.95, color=INK, alpha=0.6, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xticks=TICKS, yticks=TICKS)


def _rows(axes: Axes, labels: Sequence[str], reach: float) -> None:
    """A row for each label, from the top."""
    axes.set_yticks(range(len(labels)), [label(text, 28) for text in labels])
    axes.set_ylim(len(labels) - 1 + reach, -reach)


def _dots(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    for one in chart.series:
        style, values = look[one.name], _values(one)
        spread = np.array(one.spread) if one.spread else None
        if one.intervals:
            ends = [(y, y) if found is None else found for y, found in zip(values, one.intervals, strict=True)]
            spread = np.abs(np.array(ends).T - values)
        axes.errorbar(
            values, range(len(one.y)), xerr=spread, fmt="o", markersize=5, color=style.colour,
            markerfacecolor="none" if one.paper else style.colour, elinewidth=1,
        )  # fmt: skip
    _rows(axes, chart.labels, 0.7)


def _bars(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    height = 0.8 / len(chart.series)
    for place, one in enumerate(chart.series):
        rows = np.arange(len(one.y)) - 0.4 + height * (place + 0.5)
        colour = look[one.name].colour
        axes.barh(rows, _values(one), 0.9 * height, facecolor="none" if one.paper else colour, edgecolor=colour)
    _rows(axes, chart.labels, 0.6)


def _ratios(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    """The first bar of a row is filled, the others are hollow. No text stands on the line at 1."""
    longest = max([1.0, *(value for one in chart.series for value in one.y if value is not None)])
    height, width = 0.8 / len(chart.labels), 0.25 * longest  # of a text: no wider than the room beside the longest bar
    for row, one in enumerate(chart.series):
        colour = look[one.name].colour
        for place, (value, sign) in enumerate(zip(one.y, chart.labels, strict=True)):
            if value is not None:
                middle, fill = row - 0.4 + height * (place + 0.5), "none" if place else colour
                axes.barh(middle, value, 0.8 * height, facecolor=fill, edgecolor=colour, linewidth=1.3)
                beside = 1.0 if 1 - width < value < 1 else max(value, 0)
                axes.annotate(
                    f"{sign} {value:.2f}", (beside, middle), (4, 0), textcoords="offset points", va="center",
                    color=INK, size=8,
                )  # fmt: skip
    axes.axvline(1, color=INK, linewidth=0.9, alpha=0.7)
    axes.set_xlim(0, longest + width)
    _named_rows(axes, chart)


def _named_rows(axes: Axes, chart: Chart) -> None:
    _rows(axes, [one.name for one in chart.series], 0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0, labelsize=9)


def _steps(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    for one in chart.series:
        style = look[one.name]
        axes.stairs(_values(one), one.x, fill=True, color=style.colour, alpha=0.3, linewidth=0)
        axes.stairs(_values(one), one.x, color=style.colour, linestyle=style.dashes, linewidth=1.3)


def _ridges(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    for place, one in enumerate(chart.series):
        base, heights, style = place + 0.35, _values(one), look[one.name]
        top = base - 0.8 * heights / max(heights.max(), 1e-12)
        axes.stairs(top, one.x, baseline=base, fill=True, color=style.colour, alpha=0.35, linewidth=0)
        axes.stairs(top, one.x, baseline=base, color=style.colour, linestyle=style.dashes, linewidth=1.2)
        if one.middle is not None:
            axes.plot([one.middle, one.middle], [base, base - 0.3], color=INK, linewidth=1.6, clip_on=False)
    _named_rows(axes, chart)


def _grid(axes: Axes, chart: Chart, look: Mapping[str, Style]) -> None:
    """Every cell with its number: the lower it is, the paler the cell."""
    values = np.stack([_values(one) for one in chart.series])
    low, high = np.nanmin(values), np.nanmax(values)
    depths = (values - low) / (high - low if high > low else 1)
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            depth = 0.08 + 0.5 * depths[row, column]
            axes.fill_between([column, column + 1], row, row + 1, color=COLOURS[1], alpha=depth, linewidth=0)
            axes.text(column + 0.5, row + 0.5, f"{value:.2f}", ha="center", va="center", color=INK, size=8)
    axes.set_xticks(np.arange(len(chart.labels)) + 0.5, [label(text, 18) for text in chart.labels])
    axes.set_yticks(np.arange(len(values)) + 0.5, [label(one.name, 28) for one in chart.series])
    axes.set(xlim=(0, values.shape[1]), ylim=(len(values), 0))
    axes.grid(visible=False)


_NAMED_ROWS = ("grid", "ridges", "ratios")  # their series stand beside the axis, so they need no legend
_KINDS: Mapping[str, Callable[[Axes, Chart, Mapping[str, Style]], None]] = {
    "lines": _lines, "dots": _dots, "bars": _bars, "steps": _steps, "grid": _grid, "roc": _roc, "ridges": _ridges,
    "ratios": _ratios,
}  # fmt: skip
