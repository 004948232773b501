"""Figures of matplotlib as bytes of a file, and as SVG inside an HTML page."""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING, NamedTuple

from adascale.core.extras import optional
from adascale.report.charts import ID_COLOUR, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class InlineSvg(NamedTuple):
    """What an ``svg`` element of a page needs: its ``viewBox``, and the elements inside it."""

    box: str
    content: str


def figure_bytes(figure: Figure, form: str, transparent: bool = False) -> bytes:
    """The figure as a file: the same bytes each time, without a date."""
    matplotlib, buffer = optional("matplotlib", "report"), io.BytesIO()
    empty = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "adascale", "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
        figure.savefig(buffer, format=form, dpi=150, transparent=transparent, metadata=empty.get(form))
    return _smaller(buffer.getvalue().decode()).encode() if form == "svg" else buffer.getvalue()


def inline_svg(figure: Figure, prefix: str) -> InlineSvg:
    """The figure for an HTML page: in the page's own colours and font, with ids that begin with ``prefix``."""
    text = figure_bytes(figure, "svg", transparent=True).decode()
    text = text[text.index("<svg") :].replace("xlink:href", "href")
    text = text.replace(INK, "currentColor").replace(ID_COLOUR, "var(--id)")
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # it would apply to the whole page
    text = re.sub(r"font-family: [^;]*; ", "", text)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", text)
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    return InlineSvg(box[1], text[text.index(">") + 1 : text.rindex("<")].strip())


def _smaller(svg: str) -> str:
    """The text without comments, metadata, rotations by zero, and digits that nobody can see."""
    svg = re.sub(r"<!--.*?-->\s*|<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", svg)
    svg = re.sub(r' (d|x|y)="([^"]*)"', lambda found: f' {found[1]}="{_rounded(found[2])}"', svg)
    return re.sub(r">\s*\n\s*<", ">\n<", svg)


def _rounded(path: str) -> str:
    short = re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), path)
    return " ".join(short.split())
