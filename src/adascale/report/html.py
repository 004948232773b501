"""Pages in HTML, from the templates beside this module. All text is escaped; a page loads nothing from elsewhere."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
import secrets
from functools import cache
from typing import TYPE_CHECKING, Any

from PIL import Image

from adascale.report.charts import plot, printable
from adascale.report.document import Chart, Line, Shown, Table
from adascale.report.svg import InlineSvg, inline_svg

if TYPE_CHECKING:
    from jinja2 import Environment

THUMBNAIL = 224  # pixels; shown smaller, and enlarged on a click
_NUMBERS = re.compile(r"\[\n\s+((?:-?[\d.]+(?:e[+-]?\d+)?,?\s+)+)\]")  # a list of numbers in indented JSON


def page(template: str, **values: Any) -> str:
    """The template filled with the values. The same values give the same text."""
    numbers, prefix = itertools.count(), values.get("prefix", "")

    def drawing(chart: Chart) -> InlineSvg:
        return inline_svg(plot(chart), f"{prefix}f{next(numbers)}-")

    return _environment().get_template(template).render(drawing=drawing, **values)


def fragment(template: str, **values: Any) -> str:
    """The template as a part of another page, such as a notebook: it brings its own style, which touches nothing else.

    The elements have ids of their own each time it is made, because a notebook shows several.
    """
    mark = secrets.token_hex(4)
    return page(template, mark=mark, prefix=f"{mark}-", **values)


@cache
def _environment() -> Environment:
    import jinja2  # only where a page is written: importing it takes time

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("adascale.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"thumbnail": thumbnail, "tiny": tiny}
    made.filters["percent"] = lambda share: f"{100 * share:.2f}"
    made.filters["lines"] = _lines
    made.globals |= {"spans": _spans, "contents": _contents}
    return made


def _lines(value: Any) -> list[str]:
    """A value as indented JSON; a list of numbers stands on one line."""
    text = json.dumps(value, indent=2, default=str)
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text).split("\n")


def _printable(value: Any) -> Any:
    """Plain text with its control characters written out; markup, which is a subclass of text, as it is."""
    return printable(value) if type(value) is str else value


def _spans(table: Table) -> list[tuple[str, int]]:
    """The headings above the columns with the number of columns below each; nothing where there are none."""
    groups = [f"{one.column.group} {one.name}".strip() if one.part else one.column.group for one in table.shown()]
    return [(name, len(list(part))) for name, part in itertools.groupby(groups)] if any(groups) else []


def _contents(table: Table) -> list[tuple[Line, list[dict[str, str | None]]]]:
    """Every line with its cells. A column whose values are all equal has no best one."""
    shown = table.shown()
    marks = [found if "second" in (found := table.marks(one)) else [""] * len(found) for one in shown]
    return [
        (line, [_content(one, line, own[row]) for one, own in zip(shown, marks, strict=True)])
        for row, line in enumerate(table.lines)
    ]


def _content(shown: Shown, line: Line, mark: str) -> dict[str, str | None]:
    """A cell of a page. value: what it is sorted by (None: unknown, always last)."""
    value, text = shown.value(line), shown.text(line)
    words = value is None and bool(shown.cell(line).text)
    sorted_by = text if words else None if value is None else f"{value:.6g}"
    classes = " ".join(filter(None, (mark, "" if words else "number")))
    return {"text": text, "spread": shown.spread(line).strip(), "value": sorted_by, "classes": classes}


def tiny(picture: Image.Image) -> bool:
    """Whether the picture has so few pixels that one should see each of them."""
    return max(picture.size) <= 64


def thumbnail(picture: Image.Image) -> str:
    """The picture as a data address, on white: as PNG if it is small anyway, otherwise as JPEG."""
    small = max(picture.size) <= THUMBNAIL
    coloured = picture.convert("RGBA")
    coloured.thumbnail((THUMBNAIL, THUMBNAIL))
    flat = Image.new("RGB", coloured.size, "white")
    flat.paste(coloured, mask=coloured.getchannel("A"))
    buffer, form = io.BytesIO(), "png" if small else "jpeg"
    flat.save(buffer, form, **({} if small else {"quality": 82}))
    return f"data:image/{form};base64,{base64.b64encode(buffer.getvalue()).decode()}"
