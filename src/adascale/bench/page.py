"""The report of a benchmark: one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from PIL import Image

from adascale.bench import plots
from adascale.bench.results import Example, ModelRun, Row, Run, Spectrum
from adascale.report.charts import inline_svg
from adascale.report.html import KINDS, escape, is_mean, per_set, percent, summary, summary_over_networks
from adascale.storage.atomic import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THUMBNAIL = 96  # pixels
TAIL = 48  # characters of a file name, from its end


def write_report(run: Run, path: Path | str) -> None:
    """Write the page: whole or not at all. The same run gives the same bytes."""
    write_text(Path(path), page(run))


def page(run: Run) -> str:
    """The page as text."""
    networks = ", ".join(model.model for model in run.models)
    return Template(part("page.html")).substitute(
        title=escape(f"{run.suite}: {networks}"),
        suite=escape(run.suite),
        style=part("page.css"),
        script=part("page.js"),
        overview=_overview(run),
        summary=_summary(run),
        sets=_sets(run.rows),
        networks="\n".join(_network(model, str(place), len(run.models)) for place, model in enumerate(run.models)),
        reproduce=_escape_lines(json.dumps(run.reproduce, indent=2, default=str)),
    )


def part(name: str) -> str:
    """A piece of a page as it is in the package."""
    return (resources.files("adascale") / "report" / "templates" / name).read_text(encoding="utf-8")


def _escape_lines(text: str) -> str:
    """Escaped, with its line breaks."""
    return "\n".join(escape(line) for line in text.split("\n"))


def _overview(run: Run) -> str:
    """Networks with their accuracy, sets with their numbers of images."""
    parts = []
    for model in run.models:
        accuracy = "no labels" if model.accuracy is None else f"accuracy {percent(model.accuracy)} %"
        parts.append(f"<li><strong>{escape(model.model)}</strong> <span>{accuracy}</span></li>")
    tested = [
        f"<li><strong>{escape(name)}</strong> <span>{KINDS[info.kind]}, {info.images:,} images</span></li>"
        for name, info in (run.models[0].sets.items() if run.models else ())
    ]
    return (
        f'<div class="facts"><div><h3>Networks</h3><ul>{"".join(parts)}</ul></div>'
        f"<div><h3>Data sets</h3><ul>{''.join(tested)}</ul></div></div>"
    )


def _summary(run: Run) -> str:
    single = {model.model: summary(run, model.model) for model in run.models}
    if len(single) == 1:
        return next(iter(single.values()))
    parts = [_details(escape(name), text) for name, text in single.items()]
    return (
        "<h3>Mean over the networks</h3>\n<p>Mean ± standard deviation over the networks.</p>\n"
        f"{summary_over_networks(run)}<h3>Each network</h3>\n{''.join(parts)}"
    )


def _sets(rows: Sequence[Row]) -> str:
    """One collapsible part for each OOD set: its table, and that of the full spectrum where there is one."""
    groups: dict[str, dict[Spectrum, list[Row]]] = {}
    for row in rows:
        if not is_mean(row):
            groups.setdefault(row.dataset, {}).setdefault(row.spectrum, []).append(row)
    several = len({row.model for row in rows}) > 1
    found = []
    for name, spectra in groups.items():
        kind = KINDS[next(iter(spectra.values()))[0].kind]
        tables = [
            ("<h3>With shifted ID images on the ID side (full spectrum)</h3>\n" if spectrum == "full" else "")
            + per_set(own, several)
            for spectrum, own in spectra.items()
        ]
        found.append(_details(f"{escape(name)} <small>{kind}</small>", "".join(tables)))
    return "".join(found)


def _details(title: str, content: str, shown: bool = False, level: str = "") -> str:
    start = "<details open" if shown else "<details"
    return f"{start}{level}>\n<summary>{title}</summary>\n{content}</details>\n"


def _network(run: ModelRun, prefix: str, networks: int) -> str:
    """All about one network below the tables."""
    prefix = f"n{prefix}-"
    content = _separation(run, prefix) + _workings(run, prefix) + _gallery(run) + _missing(run)
    if networks == 1:
        return content
    return _details(escape(run.model), content, prefix == "n0-", ' class="network"')


def _separation(run: ModelRun, prefix: str) -> str:
    """Histograms and ROC curves of the method shown and those it is compared with."""
    methods = plots.compared(run)
    if not methods or not plots.ood_sets(run):
        return ""
    return Template(part("separation.html")).substitute(
        histograms="".join(_histograms(run, method, f"{prefix}h{place}-") for place, method in enumerate(methods)),
        curves="".join(
            drawn(plots.roc_curves(run, [method]), f"{prefix}r{place}-", f"ROC curves of {method}")
            for place, method in enumerate(methods)
        ),
    )


def _histograms(run: ModelRun, method: str, prefix: str) -> str:
    """A figure for each set: a phone shows one below the other, a wide window side by side."""
    figures = (
        drawn(plots.histograms(run, [method], [name]), f"{prefix}{place}-", f"Scores of {method}: ID against {name}")
        for place, name in enumerate(plots.ood_sets(run))
    )
    return f'<h3>{escape(method)}</h3>\n<div class="grid">{"".join(figures)}</div>\n'


def _workings(run: ModelRun, prefix: str) -> str:
    """AdaSCALE's own figures, where there are any."""
    profiles, known = run.profiles, plots.kinds(run)
    others = [name for name, kind in known.items() if kind != "id" and name in profiles]
    if not others or not any(known.get(name) == "id" for name in profiles):
        return ""
    return Template(part("workings.html")).substitute(
        method=escape(run.shown),
        shift="".join(
            drawn(plots.shift_curve(profiles, known, [name]), f"{prefix}s{place}-", f"Shift: ID against {name}")
            for place, name in enumerate(others)
        ),
        perturbed="".join(
            drawn(plots.perturbed_curve(profiles, known, [name]), f"{prefix}p{place}-", f"Perturbed: ID and {name}")
            for place, name in enumerate(others)
        ),
        q=drawn(plots.q_ratios(profiles, known), f"{prefix}q-", "Q and Q' of each set over those of ID"),
        percentiles=drawn(plots.percentiles(profiles, known), f"{prefix}c-", "Percentiles p of each set"),
        ratios=drawn(plots.ratios(profiles, known), f"{prefix}t-", "Ratios r of each set"),
    )


def drawn(figure: Figure, prefix: str, description: str) -> str:
    """A figure in the page."""
    return f"<figure>{inline_svg(figure, prefix, escape(description))}</figure>\n"


def _gallery(run: ModelRun) -> str:
    titles = {
        "id": ("ID images that look most OOD", "In-distribution, yet with the highest scores: the first false alarms."),
        "ood": (
            "OOD images that look most ID",
            "Not in-distribution, yet with the lowest scores: the first to slip by.",
        ),
    }
    parts = []
    for side, (title, note) in titles.items():
        cards = "".join(_card(example) for kind, own in run.examples.items() if kind == side for example in own)
        if cards:
            parts.append(f'<h3>{title}</h3>\n<p>{note}</p>\n<ul class="gallery">{cards}</ul>\n')
    if not parts:
        return ""
    return f"<section>\n<h2>The hardest images for {escape(run.shown)}</h2>\n{''.join(parts)}</section>\n"


def _card(example: Example) -> str:
    name = example.name if len(example.name) <= TAIL else f"…{example.name[1 - TAIL :]}"
    return (
        f'<li><img src="{_thumbnail(example.picture)}" alt="{escape(name)}" title="{escape(example.name)}">'
        f'<span class="name">{escape(name)}</span><span>{escape(example.dataset)}</span>'
        f"<span>score {example.score:.4g}</span><span>predicted class {example.prediction}</span></li>\n"
    )


def _thumbnail(picture: Image.Image) -> str:
    """The picture as a data address, on white: PNG where it is small anyway, JPEG else."""
    small = max(picture.size) <= THUMBNAIL
    coloured = picture.convert("RGBA")
    coloured.thumbnail((THUMBNAIL, THUMBNAIL))
    flat = Image.new("RGB", coloured.size, "white")
    flat.paste(coloured, mask=coloured.getchannel("A"))
    buffer, form = io.BytesIO(), "png" if small else "jpeg"
    flat.save(buffer, form, **({} if small else {"quality": 82}))
    return f"data:image/{form};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _missing(run: ModelRun) -> str:
    """What is not in the figures, and why."""
    parts = []
    if run.left_out:
        parts.append(f"<h3>Methods that could not be fitted</h3>\n{_reasons(run.left_out)}")
    for name, info in run.sets.items():
        if info.failures:
            title = f"Images of {escape(name)} that could not be read: {len(info.failures):,}"
            parts.append(_details(title, _reasons(info.failures)))
    return f"<section>\n<h2>Left out</h2>\n{''.join(parts)}</section>\n" if parts else ""


def _reasons(reasons: Mapping[str, str]) -> str:
    items = "".join(f"<li><strong>{escape(name)}</strong> {escape(why)}</li>" for name, why in reasons.items())
    return f'<ul class="reasons">{items}</ul>\n'
