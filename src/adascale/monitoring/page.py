"""The report of a monitor: one HTML page with the evidence over time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adascale.monitoring.alarms import KINDS, MEANINGS, Kind
from adascale.monitoring.monitor import Monitor
from adascale.report import html
from adascale.report.charts import COLOURS, DASHES, ID_COLOUR
from adascale.report.document import Cell, Chart, Column, Line, Series, Style, Table
from adascale.storage.atomic import write_text

STYLES = dict(zip(MEANINGS, map(Style, (COLOURS[0], ID_COLOUR, COLOURS[1], COLOURS[2])), strict=True))
LIMIT = Style(COLOURS[5], DASHES[1])
KIND_TITLES = {"ever": "Since the start (ever)", "continuing": "For what begins later (continuing)"}
_BELOW, _ABOVE = 2.0, 3.0  # powers of ten that are drawn below 1 and above the limit
_COLUMNS = (
    Column("evidence", "evidence", unit=""),
    Column("limit", "limit", unit=""),
    Column("raised", "raised at image", unit=""),
    Column("since", "rising since image", unit=""),
    Column("p_value", "p-value", unit="", hint="of the kind ever; it may be looked at at any time"),
)


def write_report(monitor: Monitor, path: Path | str, source: str = "") -> None:
    """Write the page: whole or not at all. source: where the scores come from."""
    write_text(Path(path), report_page(monitor, source))


def report_page(monitor: Monitor, source: str = "") -> str:
    """The page as text. Needs ``adascale[report]``, as all pages with charts do."""
    summary, history = monitor.summary(), monitor.history()
    contributed = {one["name"]: one for one in summary["alarms"] if one["raised"] and one["top"]}
    return html.page(
        "monitor.html", summary=summary, source=source, meanings=MEANINGS, lead=_lead(summary),
        table=_alarms(summary), charts=[_chart(kind, summary, history) for kind in KINDS] if summary["used"] else [],
        tops={name: _top(one) for name, one in contributed.items()},
    )  # fmt: skip


def _lead(summary: Mapping[str, Any]) -> str:
    """What has happened, in a sentence or two."""
    raised: dict[str, dict[str, Any]] = {}
    for one in summary["alarms"]:
        if one["raised"] and one["raised_at"] < raised.get(one["name"], {"raised_at": float("inf")})["raised_at"]:
            raised[one["name"]] = one
    if not raised:
        return f"No alarm in {summary['used']} images."
    texts = [
        f"{one['says'].capitalize()} (since about image {one['since']}, alarm at image {one['raised_at']})."
        for one in raised.values()
    ]
    return f"Alarm: {' '.join(texts)}"


def _alarms(summary: Mapping[str, Any]) -> Table:
    lines = []
    for one in summary["alarms"]:
        cells = {"evidence": Cell(one["log10_evidence"], text=_power(one["log10_evidence"]))}
        cells["limit"] = Cell(one["limit"], text=f"{one['limit']:.6g}")
        cells["raised"] = _whole(one["raised_at"])
        cells["since"] = _whole(one["since"])
        cells["p_value"] = Cell() if one["p_value"] is None else Cell(one["p_value"], text=f"{one['p_value']:.2g}")
        lines.append(Line(f"{one['name']} ({one['kind']})", cells))
    return Table("Alarms", _COLUMNS, lines, head="alarm")


def _top(alarm: Mapping[str, Any]) -> Table:
    """The images that contributed most to an alarm."""
    columns = [Column("factor", "factor", unit=""), Column("image", "place", unit="")]
    lines = [
        Line(
            one["name"] or f"image {one['image']}",
            {
                "factor": Cell(one["log10_factor"], text=f"{10 ** one['log10_factor']:.3g}"),
                "image": _whole(one["image"]),
            },
        )
        for one in alarm["top"]
    ]
    return Table(f"Images with the most evidence: {alarm['name']}", columns, lines, head="image")


def _chart(kind: Kind, summary: Mapping[str, Any], history: Mapping[str, Any]) -> Chart:
    own = [one for one in summary["alarms"] if one["kind"] == kind]
    limit, images = own[0]["log10_limit"], history["images"]
    low, high = -_BELOW if kind == "ever" else 0.0, limit + _ABOVE  # R_1 is about 1
    series = [
        Series(one["name"], [min(max(y, low), high) for y in history[f"{one['name']} ({kind})"]], images,
               style=STYLES[one["name"]])
        for one in own
    ]  # fmt: skip
    ends = [images[0], max(images[-1], images[0] + 1)]
    series.append(Series("limit", [limit, limit], ends, style=LIMIT))
    return Chart(
        "lines", KIND_TITLES[kind], series, x="image", y="evidence, power of ten", x_range=(ends[0], ends[1]),
        y_range=(low - 0.1, high + 0.1), size=(5.4, 3.1),
    )  # fmt: skip


def _whole(number: int | None) -> Cell:
    return Cell() if number is None else Cell(number, text=str(number))


def _power(log10: float) -> str:
    return f"{10**log10:.4g}" if -4 < log10 < 5 else f"10^{log10:.0f}"
