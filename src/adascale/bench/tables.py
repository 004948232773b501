"""A benchmark's tables, and its results as files: CSV in OpenOOD's columns, JSON, Markdown, LaTeX, scores."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from adascale.bench.captions import caption
from adascale.bench.columns import METRICS, NAMED, SPECTRA, USUAL, Look, columns_of
from adascale.bench.headline import headline, in_text, mean_headline
from adascale.bench.results import ModelRun, Row, Run
from adascale.bench.scores import save_scores
from adascale.core.errors import InputError
from adascale.report.csv import csv_text
from adascale.report.document import DASH, Cell, Column, Document, Line, Table
from adascale.report.latex import to_latex
from adascale.report.markdown import to_markdown
from adascale.storage.atomic import write_text

FORMAT, FORMAT_VERSION = "adascale-benchmark", 1
# Column of results.csv -> field of a row. The first are OpenOOD's.
_COLUMNS = {
    "dataset": "dataset", "FPR@95": "fpr95", "AUROC": "auroc", "AUPR_IN": "aupr_in", "AUPR_OUT": "aupr_out",
    "ACC": "accuracy", "FPR@95-ID": "fpr95_id", "AUROC_low": "low", "AUROC_high": "high", "kind": "kind",
    "spectrum": "spectrum", "id_images": "id_images", "ood_images": "ood_images",
}  # fmt: skip
_READ_AS = (
    "Percent. FPR@95: share of ID flagged where 95 % of the OOD is caught (as OpenOOD). Unweighted means over sets."
)


def summary(
    title: str, rows: Sequence[Row], metrics: Sequence[Column], look: Look | None = None, kept: Collection[str] = ()
) -> Table:
    """The means over the near and the far sets, a line for each method; over several networks, their means.

    A method that is missing on some of the networks is not ranked, and its line says on how many it was run. Without a
    look, the lines are in the order of the methods. kept: methods whose lines are shown even if they are below the cut.
    """
    found: dict[str, dict[str, list[Row]]] = {}  # method -> spectrum and kind -> a row for each network
    for row in (row for row in rows if row.is_mean):
        found.setdefault(row.method, {}).setdefault(f"{row.spectrum}.{row.kind}", []).append(row)
    present = {group for own in found.values() for group in own}
    known = [column for column in NAMED.values() if column.key.rpartition(".")[0] in present]
    wanted = columns_of(metrics) if look is None else look.shown(metrics)
    columns = [column for column in wanted if column in known]
    sort = None if look is None else look.sorted_by(column.key for column in known)
    counts = {method: max(map(len, own.values())) for method, own in found.items()}
    most, lines = max(counts.values(), default=0), []
    for method, own in found.items():
        cells = {}
        for column in (*columns, *([] if sort is None else [sort])):
            group, _, figure = column.key.rpartition(".")
            if networks := own.get(group):
                cells[column.key] = _over_networks([getattr(row, figure) for row in networks])
        if (count := counts[method]) < most:
            lines.append(Line(method, cells, rivals=None, remark=f"{count} of {most} networks"))
        else:
            lines.append(Line(method, cells))
    return ordered(Table(title, columns, lines, head="method"), sort, None if look is None else look.top, kept)


def ordered(table: Table, sort: Column | None, top: int | None, kept: Collection[str] = ()) -> Table:
    """The lines with the best value of the column first, and only the first few of them.

    Lines that are not ranked come after the others, and those without a value last. Lines of the labels ``kept`` are
    shown even if they are below the cut, with their rank.
    """
    lines, sign = list(table.lines), -1 if sort is not None and sort.good == "high" else 1

    def place(line: Line) -> tuple[bool, bool, float]:
        value = None if sort is None else line.cells.get(sort.key, Cell()).measured
        return value is None, line.rivals is None, sign * (value or 0.0)

    if sort is not None:
        lines.sort(key=place)
    if top is None or top >= len(lines):
        return replace(table, lines=lines)
    below = [line for line in lines[top:] if line.label in kept]
    if sort is not None:
        ranks = {line.label: 1 + sum(place(other) < place(line) for other in lines) for line in below}
        below = [replace(one, remark=one.remark or f"rank {ranks[one.label]}") for one in below]
    note = f"The first {top} of {len(lines)} lines" + (f" by {sort.group} {sort.title}" if sort is not None else "")
    note += "".join(f", and {line.whole_label}" for line in below)
    notes = "\n".join(filter(None, (table.note, f"{note}; results.csv has all of them.")))
    rest = [line for line in lines[top:] if line.label not in kept]
    return replace(table, lines=[*lines[:top], *below], rest=rest, note=notes)


def _over_networks(shares: Sequence[float]) -> Cell:
    """The mean and, of several, the deviation of a sample (n - 1), as in OpenOOD's tables over seeds; in percent."""
    mean = sum(shares) / len(shares)
    if len(shares) == 1:
        return Cell(100 * mean)
    return Cell(100 * mean, spread=100 * (sum((share - mean) ** 2 for share in shares) / (len(shares) - 1)) ** 0.5)


def per_set(
    rows: Sequence[Row], several: bool, look: Look = Look(), kept: Mapping[str, Collection[str]] | None = None
) -> Table:
    """ID against one OOD set: a line for each method, and for each network if there are several.

    kept: for each network the methods whose lines are shown even if they are below the cut.
    """
    fpr95, auroc, *others = METRICS
    columns = [
        *([Column("network", "Network")] if several else []), auroc,
        Column("interval", "95 % interval", hint="of the AUROC, by bootstrap over the images"), fpr95, *others,
        Column("id_images", "ID images"), Column("ood_images", "OOD images"),
    ]  # fmt: skip
    title = rows[0].dataset + SPECTRA[rows[0].spectrum]
    sort = look.sorted_by(column.key for column in NAMED.values())
    metric = None if sort is None else next(one for one in METRICS if sort.key.endswith(f".{one.key}"))
    lines: list[Line] = []
    rest: list[Line] = []
    for model in dict.fromkeys(row.model for row in rows):
        own = Table(title, columns, [_set_line(row) for row in rows if row.model == model])
        cut = ordered(own, metric, look.top, (kept or {}).get(model, ()))
        lines += cut.lines
        rest += cut.rest
    return Table(title, columns, lines, head="method", rest=rest)


def _set_line(row: Row) -> Line:
    cells = {one.key: Cell(100 * getattr(row, one.key)) for one in METRICS} | {"network": Cell(text=row.model)}
    cells |= {key: Cell(getattr(row, key), text=f"{getattr(row, key):,}") for key in ("id_images", "ood_images")}
    if row.low is not None and row.high is not None:
        cells["interval"] = Cell(100 * row.low, text=f"{100 * row.low:.2f}{DASH}{100 * row.high:.2f}")
    return Line(row.method, cells, rivals=row.model)


def summaries(run: Run, metrics: Sequence[Column], look: Look = Look()) -> list[Table]:
    """The summary of each network."""
    return [_own_summary(run, one, one.model, metrics, look) for one in run.models]


def mean_summary(run: Run, title: str, metrics: Sequence[Column], look: Look = Look()) -> Table:
    """The means over all networks."""
    return summary(title, run.rows, metrics, look, {model.kept for model in run.models})


def _own_summary(run: Run, model: ModelRun, title: str, metrics: Sequence[Column], look: Look) -> Table:
    return summary(title, [row for row in run.rows if row.model == model.model], metrics, look, [model.kept])


def for_terminal(run: Run, model: ModelRun, look: Look = Look()) -> Table:
    """The means of one network, with a title for the terminal."""
    accuracy = "" if model.accuracy is None else f", accuracy {100 * model.accuracy:.2f} %"
    table = _own_summary(run, model, "", USUAL, look)
    quantities = " / ".join(dict.fromkeys(column.title for column in table.columns))
    return _short(replace(table, title=f"{run.suite}: {model.model}{accuracy}\n{quantities} in percent"))


def leads(run: Run) -> list[str]:
    """The sentence on who leads, for each network; with several, first the one on their mean."""
    sentences = {name: headline(found) for name, found in run.standings.items()}
    if len(run.models) == 1:
        return list(sentences.values())
    return [*filter(None, [mean_headline(run.rows)]), *(f"{name}: {text}" for name, text in sentences.items())]


def run_document(run: Run, look: Look = Look()) -> Document:
    """A table for each network, and one for all of them if there are several."""
    tables = summaries(run, USUAL, look)
    if len(tables) > 1:
        mean = mean_summary(run, f"mean and deviation over {len(tables)} networks", USUAL, look)
        tables.append(replace(mean, lines=[_with_deviation(line) for line in mean.lines]))
    names = [[model.model] for model in run.models] + [[model.model for model in run.models]]
    tables = [
        replace(table, caption=caption(run.suite, own, table, look)) for table, own in zip(tables, names, strict=False)
    ]
    notes = [_READ_AS]
    for model in run.models:
        sizes = ", ".join(f"{name} {info.images} ({info.kind})" for name, info in model.sets.items())
        notes.append(f"Images, {model.model}: {sizes}.")
        notes += [f"{model.model}: {note}" for note in absences(model)]
        notes += [f"Left out, {model.model}: {label}: {reason}" for label, reason in model.left_out.items()]
    if note := run.reproduce.get("suite", {}).get("note"):
        notes.append(note)
    return Document(run.suite, tables, notes, lead="\n\n".join(leads(run)))


def absences(model: ModelRun) -> list[str]:
    """Which lines and sets are not in the tables of a network, other than methods that could not be fitted."""
    notes = []
    if model.twins:
        lines = ", ".join(f"{label} = {kept}" for label, kept in model.twins.items())
        notes.append(f"Lines with the same parameters appear once: {lines}.")
    for name, failures in model.unreadable.items():
        image, reason = next(iter(failures.items()))
        notes.append(f"Left out set {name}: none of its {len(failures)} images can be read ({image}: {reason}).")
    return notes


def _with_deviation(line: Line) -> Line:
    """In these files the deviation of a single network is 0, not left out."""
    return replace(line, cells={key: replace(cell, spread=cell.spread or 0.0) for key, cell in line.cells.items()})


def _short(table: Table) -> Table:
    """With headings that stand in the middle of a line: near-OOD, not Near-OOD."""
    columns = [replace(one, group=in_text(one.group)) for one in table.columns]
    return replace(table, columns=columns)


def write_results(run: Run, folder: Path, look: Look = Look()) -> list[Path]:
    """``results.csv``, ``results.json``, ``tables.md``, ``tables.tex`` and ``scores.safetensors``.

    look: how the tables for people are sorted and cut; CSV and JSON have every line in the order of the methods.

    For example:

        >>> [file.name for file in write_results(run, Path("results"))]
        ['results.csv', 'results.json', 'tables.md', 'tables.tex', 'scores.safetensors']
    """
    folder.mkdir(parents=True, exist_ok=True)
    document = run_document(run, look)
    short = replace(document, tables=[_short(table) for table in document.tables])
    texts = {
        "results.csv": csv_text(map(_record, run.rows), ["model", "method", *_COLUMNS]),
        "results.json": json.dumps(as_json(run), indent=1, allow_nan=False) + "\n",
        "tables.md": to_markdown(short, marked=True),
        "tables.tex": to_latex(document),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [*(folder / name for name in texts), save_scores(run, folder)]


def read_results(path: Path) -> dict[str, Any]:
    """``results.json`` of a folder, or the file itself."""
    file = path / "results.json" if path.is_dir() else path
    try:
        document: dict[str, Any] = json.loads(file.read_text("utf8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read as a benchmark's results ({error}).") from error
    expected = {"format": FORMAT, "format_version": FORMAT_VERSION}
    if not isinstance(document, dict) or {name: document.get(name) for name in expected} != expected:
        raise InputError(f"{file} is not a results.json of adascale bench that this version can read.")
    return document


def as_json(run: Run) -> dict[str, Any]:
    """What ``results.json`` holds."""
    failures = {
        model.model: {name: dict(info.failures) for name, info in model.sets.items() if info.failures}
        | {name: dict(found) for name, found in model.unreadable.items()}
        for model in run.models
    }
    return {
        "format": FORMAT, "format_version": FORMAT_VERSION, "suite": run.suite, "headline": leads(run),
        "reproduce": run.reproduce, "failures": failures, "rows": [asdict(row) for row in run.rows],
    }  # fmt: skip


def _record(row: Row) -> dict[str, Any]:
    """Shares in percent, as OpenOOD writes them, with more digits."""
    record = {"model": row.model, "method": row.method} | {name: getattr(row, of) for name, of in _COLUMNS.items()}
    return {name: f"{100 * value:.4f}" if isinstance(value, float) else value for name, value in record.items()}
