"""How every plot looks: its colours, its axes, and the bytes it is saved as."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from adascale.bench.results import Kind
from adascale.core.extras import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#22272d"  # text and axes; the report puts the page's own colour in its place
# Okabe and Ito's colours, told apart by colour-blind readers. Yellow and black are left out: one of the two is
# invisible on a light or a dark page.
ID_COLOUR = "#0072b2"
COLOURS = ("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8f98")
DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1.2)))
TAIL = 0.005  # of all values, not drawn on either side: scores have long tails


class Style(NamedTuple):
    """How a set is drawn, in every plot."""

    colour: str
    dashes: Any = "solid"


def styles(kinds: Mapping[str, Kind]) -> dict[str, Style]:
    """The style of each set: ID in blue, then the OOD sets, then shifted ID, in the order given."""
    found = {name: Style(ID_COLOUR) for name, kind in kinds.items() if kind == "id"}
    others = sorted((name for name, kind in kinds.items() if kind != "id"), key=lambda name: kinds[name] == "shifted")
    for place, name in enumerate(others):
        turn, colour = divmod(place, len(COLOURS))
        found[name] = Style(COLOURS[colour], DASHES[turn % len(DASHES)])
    return found


def printable(text: str) -> str:
    """The text with control characters, lone surrogates and the like written out, as in Python's own notation."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def label(text: str, length: int = 30) -> str:
    """A name for a plot: printable, its middle left out if it is long, and no formula even with dollars in it."""
    text = printable(text)
    text = text if len(text) <= length else f"{text[: length // 2]}…{text[1 + length // 2 - length :]}"
    return text.replace("$", r"\$")


def canvas(
    rows: int, columns: int, size: tuple[float, float], share: Literal["row", "all", "none"] = "none"
) -> tuple[Figure, list[list[Axes]]]:
    """An empty figure with ``rows`` x ``columns`` plots, each about ``size`` inches, with shared axes or not."""
    figure = optional("matplotlib.figure", "report").Figure(
        figsize=(columns * size[0], rows * size[1]), layout="constrained", facecolor="white"
    )
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    for axes in grid.flat:
        _dress(axes)
    return figure, [list(row) for row in grid]


def _dress(axes: Axes) -> None:
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


def title(axes: Axes, left: str, right: str = "") -> None:
    """The name of a plot on the left, a figure on the right."""
    axes.set_title(left, loc="left", color=INK, size=9.5, weight="bold")
    axes.set_title(right, loc="right", color=INK, size=8.5)


def legend(figure: Figure, names: Sequence[str], look: Mapping[str, Style]) -> None:
    """The names of the sets below all plots, where they hide nothing, in as many columns as fit."""
    line = optional("matplotlib.lines", "report").Line2D
    handles = [line([], [], color=look[name].colour, linestyle=look[name].dashes, linewidth=2.5) for name in names]
    texts = [label(name) for name in names]
    fitting = int(72 * figure.get_figwidth() / (5.2 * max(map(len, texts)) + 30))
    columns = min(len(names), max(1, fitting))
    figure.set_figheight(figure.get_figheight() + 0.17 * (-(-len(names) // columns) - 1))  # not at the plots' expense
    box = figure.legend(
        handles, ["-"] * len(handles), loc="outside lower center", ncols=columns,
        frameon=False, fontsize=8.5, labelcolor=INK, handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip
    for entry, text in zip(box.get_texts(), texts, strict=True):
        entry.set_text(text)  # set afterwards: matplotlib hides a name that begins with an underscore


def finite(values: Tensor) -> Tensor:
    """The values that can be drawn, as float64 on the CPU."""
    values = torch.as_tensor(values).detach().cpu().double().flatten()
    return values[values.isfinite()]


def limits(values: Sequence[Tensor]) -> tuple[float, float]:
    """Where the middle of all values lies, without the tails; never empty."""
    union = torch.cat([finite(part) for part in values]).sort().values
    if not len(union):
        return 0.0, 1.0
    low, high = (float(union[round(share * (len(union) - 1))]) for share in (TAIL, 1 - TAIL))
    return (low, high) if high - low > 1e-9 * max(1.0, abs(low)) else (low - 0.5, high + 0.5)


def shares(values: Tensor, edges: Tensor) -> Tensor:
    """The share of all values in each bin."""
    values = finite(values)
    return torch.histogram(values, edges).hist / max(1, len(values))


def render(figure: Figure, form: str, transparent: bool = False) -> bytes:
    """The figure as a file: the same bytes each time, without a date."""
    matplotlib, buffer = optional("matplotlib", "report"), io.BytesIO()
    empty = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "adascale", "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
        figure.savefig(buffer, format=form, dpi=150, transparent=transparent, metadata=empty.get(form))
    return _smaller(buffer.getvalue().decode()).encode() if form == "svg" else buffer.getvalue()


def inline_svg(figure: Figure, prefix: str, description: str) -> str:
    """The figure for an HTML page: in the page's own colours and font, with ids of its own, as wide as its container.

    ``description`` must be escaped already.
    """
    text = render(figure, "svg", transparent=True).decode()
    text = text[text.index("<svg") :].replace("xlink:href", "href")
    text = text.replace(INK, "currentColor").replace(ID_COLOUR, "var(--id)")
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # it would reach the whole page
    text = re.sub(r"font-family: [^;]*; ", "", text)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    return f'<svg {box[0]} role="img" aria-label="{description}">' + text[text.index(">") + 1 :].strip()


def _smaller(svg: str) -> str:
    """Without comments, metadata, turns by nothing, and digits that nobody can see."""
    svg = re.sub(r"<!--.*?-->\s*|<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", svg)
    svg = re.sub(r' (d|x|y)="([^"]*)"', lambda found: f' {found[1]}="{_rounded(found[2])}"', svg)
    return re.sub(r">\s*\n\s*<", ">\n<", svg)


def _rounded(path: str) -> str:
    short = re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), path)
    return " ".join(short.split())
