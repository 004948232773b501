"""A benchmark's figures: score histograms, ROC curves, and what AdaSCALE sees inside the network.

Each function returns a ``matplotlib.figure.Figure``; nothing global is touched and no window opens. A set has the same
colour in every figure, ID is blue. Needs ``adascale[report]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adascale.bench.diagnostics import mean_ratio
from adascale.bench.results import Kind, ModelRun, Profile, Run
from adascale.core.errors import InputError
from adascale.maths import metrics
from adascale.report.charts import INK, Style, canvas, finite, label, legend, limits, render, shares, styles, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (3.5, 2.35)  # inches
BINS = 40
TICKS = (0, 0.2, 0.4, 0.6, 0.8, 1)
POINTS = 200  # of a ROC curve


def kinds(run: ModelRun) -> dict[str, Kind]:
    """The kind of each set of the network, in their order."""
    return {name: info.kind for name, info in run.sets.items()}


def ood_sets(run: ModelRun) -> list[str]:
    """The OOD sets that have images."""
    return [name for name, info in run.sets.items() if info.kind in ("near", "far") and info.images]


def compared(run: ModelRun) -> list[str]:
    """The method shown and, where they were run, SCALE and MSP to compare it with."""
    return [method for method in dict.fromkeys((run.shown, "scale", "msp")) if method in run.scores]


def histograms(run: ModelRun, methods: Sequence[str], sets: Sequence[str] | None = None) -> Figure:
    """The scores of ID against those of each OOD set: one row a method, one column a set (all, or ``sets``).

    The axis covers the middle 99 % of all of the method's scores, whichever sets are drawn.
    """
    scores = {method: _scores(run, method) for method in methods}
    chosen = list(sets) if sets is not None else ood_sets(run)
    rows, columns = _shape(len(methods), len(chosen))
    figure, grid = canvas(rows, columns, PANEL)
    panels = [axes for row in grid for axes in row]
    look, places = styles(kinds(run)), [(method, name) for method in methods for name in chosen]
    for axes, (method, name) in zip(panels, places, strict=False):
        top = _histogram(axes, scores[method], _id(run), name, look)
        axes.set_ylim(0, top)
        note = f"AUROC {100 * metrics.auroc(scores[method][_id(run)], scores[method][name]):.1f}"
        title(axes, label(name if len(methods) == 1 else f"{method}: {name}", 24), note)
        axes.set_xlabel("score, middle 99 % (right: more OOD)")
    for axes in panels[len(places) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel("share of images")
    legend(figure, [_id(run), *chosen], look)
    return figure


def _histogram(axes: Axes, scores: Mapping[str, Tensor], id_name: str, name: str, look: Mapping[str, Style]) -> float:
    low, high = limits(list(scores.values()))
    edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64)
    for part in (id_name, name):
        heights, style = shares(scores[part], edges).numpy(), look[part]
        axes.stairs(heights, edges.numpy(), fill=True, color=style.colour, alpha=0.3, linewidth=0)
        axes.stairs(heights, edges.numpy(), color=style.colour, linestyle=style.dashes, linewidth=1.3)
    axes.set_xlim(low, high)
    return 1.08 * max(0.01, *(float(shares(values, edges).max()) for values in scores.values()))


def roc_curves(run: ModelRun, methods: Sequence[str]) -> Figure:
    """The share of OOD caught against the share of ID flagged, for every threshold: one plot a method."""
    figure, grid = canvas(1, len(methods), (3.5, 3.75))
    look, sets = styles(kinds(run)), ood_sets(run)
    for axes, method in zip(grid[0], methods, strict=True):
        scores = _scores(run, method)
        for name in sets:
            flagged, caught = _roc(scores[_id(run)], scores[name])
            axes.plot(flagged, caught, color=look[name].colour, linestyle=look[name].dashes, linewidth=1.5)
        axes.plot([0, 1], [0, 1], color=INK, alpha=0.35, linewidth=0.8)
        axes.axhline(0.95, color=INK, alpha=0.6, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set(
            xlim=(-0.01, 1.01),
            ylim=(-0.01, 1.01),
            xlabel="share of ID flagged (dashed: 95 % of OOD caught)",
        )
        axes.set(xticks=TICKS, yticks=TICKS)
        title(axes, label(method, 24))
    grid[0][0].set_ylabel("share of OOD caught")
    legend(figure, sets, look)
    return figure


def _roc(id_scores: Tensor, ood_scores: Tensor) -> tuple[Any, Any]:
    """The curve with its collinear points left out and, beyond ``POINTS``, thinned evenly along its length."""
    thresholds = torch.unique(torch.cat([id_scores, ood_scores]))
    curve = torch.stack([_above(side, thresholds) for side in (id_scores, ood_scores)], dim=1)
    curve = torch.cat([curve.new_zeros(1, 2), curve.flip(0)])
    step = curve.diff(dim=0)
    turns = (step[1:, 0] * step[:-1, 1] - step[1:, 1] * step[:-1, 0]).abs() > 1e-12
    ends = torch.ones(1, dtype=torch.bool)
    curve = curve[torch.cat([ends, turns, ends])]
    if len(curve) > POINTS:
        length = torch.cat([torch.zeros(1), curve.diff(dim=0).norm(dim=1).cumsum(0)]).double()
        wanted = torch.linspace(0, float(length[-1]), POINTS, dtype=torch.float64)
        curve = curve[torch.unique(torch.searchsorted(length, wanted).clamp(max=len(curve) - 1))]
    return curve[:, 0].numpy(), curve[:, 1].numpy()


def _above(scores: Tensor, thresholds: Tensor) -> Tensor:
    return 1 - torch.searchsorted(scores.sort().values, thresholds).double() / len(scores)


def shift_curve(
    profiles: Mapping[str, Profile], kinds: Mapping[str, Kind], sets: Sequence[str] | None = None
) -> Figure:
    """How far activations move when the image is perturbed, ``|a_eps - a|``, from the strongest to the weakest.

    ID against each other set (all, or ``sets``): the mean over the images, and one deviation to each side.
    """
    curves = {name: (part.ranks, part.shift_mean, part.shift_std) for name, part in profiles.items()}
    return _curves(curves, kinds, sets, r"shift $|a_\epsilon - a|$", floor=True)


def perturbed_curve(
    profiles: Mapping[str, Profile], kinds: Mapping[str, Kind], sets: Sequence[str] | None = None
) -> Figure:
    """The activations of the perturbed images, ``a_eps``, in the order of the unperturbed; otherwise as the shift."""
    curves = {name: (part.ranks, part.perturbed_mean, part.perturbed_std) for name, part in profiles.items()}
    floor = all(float(mean.min()) >= 0 for _, mean, _ in curves.values())
    return _curves(curves, kinds, sets, r"perturbed activation $a_\epsilon$", floor)


def _curves(
    curves: Mapping[str, tuple[Tensor, Tensor, Tensor]],
    kinds: Mapping[str, Kind],
    sets: Sequence[str] | None,
    quantity: str,
    floor: bool,
) -> Figure:
    known, others = _split(curves, kinds)
    chosen, look = list(sets) if sets is not None else others, styles(kinds)
    rows, columns = _shape(1, len(chosen))
    figure, grid = canvas(rows, columns, PANEL)
    panels = [axes for row in grid for axes in row]
    low = 0.0 if floor else min(float((mean - std).min()) for _, mean, std in curves.values())
    high = max(float((mean + std).max()) for _, mean, std in curves.values())
    for axes, name in zip(panels, chosen, strict=False):
        for part in (*known, name):
            _band(axes, *curves[part], look[part], low)
        axes.set(
            ylim=(low, high + 0.05 * (high - low) or 1.0), xlabel="place in the order of the activations, in % of all"
        )
        title(axes, label(name))
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel(quantity)
    legend(figure, [*known, *chosen], look)
    return figure


def _band(axes: Axes, ranks: Tensor, mean: Tensor, std: Tensor, style: Style, low: float) -> None:
    x, middle, width = (part.detach().cpu().double() for part in (ranks, mean, std))
    under, over = (middle - width).clamp(min=low), middle + width
    axes.fill_between(x.numpy(), under.numpy(), over.numpy(), color=style.colour, alpha=0.18, linewidth=0)
    axes.plot(x.numpy(), middle.numpy(), color=style.colour, linestyle=style.dashes, linewidth=1.5)
    if len(x) > 1 and float(x.min()) > 0 and float(x.max() / x.min()) > 30:
        axes.set_xscale("log")  # the strongest few percent are what counts
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    axes.set_xlim(float(x.min()), float(x.max()))


def q_ratios(profiles: Mapping[str, Profile], kinds: Mapping[str, Kind]) -> Figure:
    """``Q`` and ``Q'`` of each set: its mean over the mean of ID. Above 1, the set moves further than ID does."""
    known, others = _split(profiles, kinds)
    figure, grid = canvas(1, 1, (3.9, 0.9 + 0.5 * len(others)))
    axes, look, longest = grid[0][0], styles(kinds), 1.0
    for place, name in enumerate(others):
        for shift, filled, quantity in ((-0.2, True, "q"), (0.2, False, "q_prime")):
            ratio = _ratio(profiles, known, name, quantity)
            if ratio is None:
                continue
            fill = look[name].colour if filled else "none"
            axes.barh(place + shift, ratio, 0.32, facecolor=fill, edgecolor=look[name].colour, linewidth=1.3)
            sign = "Q" if filled else "Q\N{PRIME}"
            axes.annotate(
                f"{sign} {ratio:.2f}", (max(ratio, 0), place + shift), (4, 0), textcoords="offset points", va="center",
                color=INK, size=8,
            )  # fmt: skip
            longest = max(longest, ratio)
    axes.axvline(1, color=INK, linewidth=0.9, alpha=0.7)
    axes.set(xlim=(0, 1.25 * longest), xlabel="mean of the set over mean of ID (line: as ID)")
    axes.grid(axis="y", visible=False)
    _names(axes, others)
    return figure


def _ratio(profiles: Mapping[str, Profile], known: Sequence[str], name: str, quantity: str) -> float | None:
    below = torch.cat([getattr(profiles[part], quantity).flatten() for part in known])
    return mean_ratio(getattr(profiles[name], quantity), below)


def percentiles(profiles: Mapping[str, Profile], kinds: Mapping[str, Kind]) -> Figure:
    """How the percentile ``p`` that each image got is distributed in each set; a tick marks the median."""
    return _ridges({name: part.percentile for name, part in profiles.items()}, kinds, "percentile p")


def ratios(profiles: Mapping[str, Profile], kinds: Mapping[str, Kind]) -> Figure:
    """How the scaling factor's exponent ``r`` is distributed in each set; a tick marks the median."""
    return _ridges({name: part.ratio for name, part in profiles.items()}, kinds, "ratio r")


def _ridges(values: Mapping[str, Tensor], kinds: Mapping[str, Kind], quantity: str) -> Figure:
    known, others = _split(values, kinds)
    names, look = [*known, *others], styles(kinds)
    figure, grid = canvas(1, 1, (3.9, 0.6 + 0.45 * len(names)))
    axes, (low, high) = grid[0][0], limits(list(values.values()))
    edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64)
    for place, name in enumerate(names):
        heights = shares(values[name], edges)
        top, style = place + 0.35 - 0.8 * heights / heights.max().clamp(min=1e-12), look[name]
        axes.stairs(top, edges, baseline=place + 0.35, fill=True, color=style.colour, alpha=0.35, linewidth=0)
        axes.stairs(top, edges, baseline=place + 0.35, color=style.colour, linestyle=style.dashes, linewidth=1.2)
        if len(drawn := finite(values[name])):
            middle = min(max(float(drawn.median()), low), high)
            axes.plot([middle, middle], [place + 0.35, place + 0.05], color=INK, linewidth=1.6)
    axes.set(xlim=(low, high), xlabel=f"{quantity}, middle 99 % of all values")
    axes.grid(axis="y", visible=False)
    _names(axes, names)
    return figure


def _names(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [label(name, 22) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelsize=9)


def save_all(run: Run, folder: Path | str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write every figure of every network into the folder, as ``NETWORK-FIGURE.FORMAT``."""
    if not set(formats) <= {"png", "svg", "pdf"}:
        raise InputError(f"formats={list(formats)}; they are among png, svg, pdf.")
    folder, written, taken = Path(folder), list[Path](), set[str]()
    folder.mkdir(parents=True, exist_ok=True)
    for model in run.models:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", model.model).strip("._")[:80] or "network"
        name = next(slug for slug in (name, *(f"{name}_{turn}" for turn in range(2, 10**6))) if slug not in taken)
        taken.add(name)
        for figure, draw in _figures(model).items():
            for form in formats:
                path = folder / f"{name}-{figure}.{form}"
                path.write_bytes(render(draw(), form))  # anew: drawing once moves things for the next time
                written.append(path)
    return written


def _figures(run: ModelRun) -> dict[str, Callable[[], Figure]]:
    methods = compared(run)
    found: dict[str, Callable[[], Figure]] = {}
    if methods and ood_sets(run):
        found["histograms"] = lambda: histograms(run, methods)
        found["roc"] = lambda: roc_curves(run, methods)
    for draw in (shift_curve, perturbed_curve, q_ratios, percentiles, ratios) if len(run.profiles) > 1 else ():
        found[draw.__name__] = lambda draw=draw: draw(run.profiles, kinds(run))  # type: ignore[misc]
    return found


def _scores(run: ModelRun, method: str) -> dict[str, Tensor]:
    if method not in run.scores:
        raise InputError(f"There are no scores of {method!r}; there are of {sorted(run.scores)}.")
    return {name: finite(values) for name, values in run.scores[method].items()}


def _id(run: ModelRun) -> str:
    return next(name for name, info in run.sets.items() if info.kind == "id")


def _split(values: Mapping[str, Any], kinds: Mapping[str, Kind]) -> tuple[list[str], list[str]]:
    """The ID sets and the others of which there are values, in the order of ``kinds``."""
    known = [name for name in kinds if name in values and kinds[name] == "id"]
    others = [name for name in kinds if name in values and kinds[name] != "id"]
    if not known or not others:
        raise InputError(f"Profiles of {sorted(values)}; ID and at least one other set are needed.")
    return known, others


def _shape(methods: int, sets: int) -> tuple[int, int]:
    """Rows and columns: a row for each method, or for one method as many as three columns need."""
    if not methods or not sets:
        raise InputError("There is nothing to draw: at least one method and one OOD set with images are needed.")
    return (methods, sets) if methods > 1 else (-(-sets // 3), min(3, sets))
