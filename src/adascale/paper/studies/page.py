"""The report of studies: one HTML page with a section and charts for each result in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from string import Template
from typing import Any

from adascale.bench.page import drawn, part
from adascale.paper.studies.base import Block, Cell, Result
from adascale.paper.studies.charts import draw
from adascale.paper.studies.write import remarks, shown, stored, texts
from adascale.report.html import Cell as HtmlCell
from adascale.report.html import Column as HtmlColumn
from adascale.report.html import escape, table
from adascale.storage.atomic import write_text

LONG = 40  # rows; a longer table is folded away


def write_page(folder: Path, names: Sequence[str]) -> Path:
    """``report.html`` of the results in the folder, in the order of the names."""
    return write_text(folder / "report.html", page(stored(folder, names)))


def page(results: Sequence[Result]) -> str:
    """The page as text."""
    return Template(part("studies.html")).substitute(
        style=part("page.css"),
        script=part("page.js"),
        notice="".join(f"<p><strong>{escape(text)}</strong></p>\n" for text in mixed(results)),
        contents="".join(f'<li><a href="#{escape(one.study)}">{escape(one.title)}</a></li>\n' for one in results),
        sections="\n".join(_section(one) for one in results),
    )


def mixed(results: Sequence[Result]) -> list[str]:
    """What a reader must know where sections are of different runs: suites, images, networks."""
    kinds: dict[str, Callable[[Result], Any]] = {
        "suite": lambda one: one.suite,
        "images": lambda one: one.about.get("sets"),
        "networks": lambda one: {name: x["fingerprint"] for name, x in one.about.get("networks", {}).items()},
    }
    found = [name for name, of in kinds.items() if any(of(one) != of(results[0]) for one in results[1:])]
    if not found:
        return []
    runs: dict[str, list[str]] = {}
    for one in results:
        images = sum(about["images"] for about in one.about.get("sets", {}).values())
        networks = ", ".join(one.about.get("networks", {}))
        runs.setdefault(f"{one.suite}, {images} images, {networks}", []).append(one.study)
    texts = "; ".join(f"{', '.join(names)}: {run}" for run, names in runs.items())
    return [f"Not all sections are of the same {', '.join(found)}; do not compare across them. {texts}."]


def _section(result: Result) -> str:
    blocks = [_block(block, f"{result.study}-{place}-") for place, block in enumerate(result.blocks)]
    notes = "".join(f"<p>{escape(note)}</p>\n" for note in remarks(result))
    command = str(result.about.get("command") or f"adascale study {result.study}")
    about = "\n".join(map(escape, json.dumps(result.about, indent=2, default=str).split("\n")))
    return (
        f'<section id="{escape(result.study)}">\n<h2>{escape(result.title)}</h2>\n'
        f"<p>{escape(result.question)} <small>Paper: {escape(result.source)}</small></p>\n{''.join(blocks)}{notes}"
        f"<details>\n<summary>To do it again</summary>\n<p><code>{escape(command)}</code></p>\n"
        f'<pre class="scroll" tabindex="0">{about}</pre>\n</details>\n</section>\n'
    )


def _block(block: Block, prefix: str) -> str:
    columns = [HtmlColumn("Row")]
    for one in shown(block):
        name = f"{one.column.title} ({one.column.unit})" if one.column.unit != "%" else one.column.title
        ranked = one.column.good if one.part in ("", "measured") else None
        group = f"{one.column.group} {name}".strip() if one.part else one.column.group
        columns.append(HtmlColumn(one.part or name, group, ranked, one.column.hint))
    rows = []
    for line, printed in zip(block.lines, texts(block), strict=True):
        cells = [one.value(line.cells.get(one.column.key, Cell(None))) for one in shown(block)]
        label = HtmlCell(escape(line.label), line.label)
        rows.append([label, *(HtmlCell(escape(t), v) for t, v in zip(printed[1:], cells, strict=True))])
    charts = "".join(
        drawn(draw(chart), f"{prefix}{place}-", f"{chart.title}: {block.title}")
        for place, chart in enumerate(block.charts)
    )
    content = table(block.title, columns, rows)
    if len(rows) > LONG:
        content = f"<details>\n<summary>{len(rows)} rows</summary>\n{content}</details>\n"
    note = "".join(f"<p>{escape(line)}</p>\n" for line in block.note.splitlines())
    drawings = f'<div class="grid wide">{charts}</div>\n' if charts else ""
    return f"<h3>{escape(block.title)}</h3>\n{content}{note}{drawings}"
