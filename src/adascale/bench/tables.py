"""A benchmark's results as files: CSV in OpenOOD's columns, JSON with all that shaped them, Markdown, LaTeX, scores."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from safetensors.torch import save_file

from adascale.bench.figures import over_models
from adascale.bench.results import MEANS, ModelRun, Row, Run, Spectrum
from adascale.core.errors import InputError
from adascale.storage.atomic import write_text
from adascale.storage.rows import write_csv

FORMAT, FORMAT_VERSION = "adascale-benchmark", 1
# Column of the file -> field of a row. The first are OpenOOD's.
_COLUMNS = {
    "dataset": "dataset",
    "FPR@95": "fpr95",
    "AUROC": "auroc",
    "AUPR_IN": "aupr_in",
    "AUPR_OUT": "aupr_out",
    "ACC": "accuracy",
    "FPR@95-ID": "fpr95_id",
    "AUROC_low": "low",
    "AUROC_high": "high",
    "kind": "kind",
    "spectrum": "spectrum",
    "id_images": "id_images",
    "ood_images": "ood_images",
}
_LOWER_IS_BETTER = {"fpr95": True, "auroc": False}
_SUMMARY = {"fpr95": "FPR@95", "auroc": "AUROC"}


def write(run: Run, folder: Path) -> list[Path]:
    """``results.csv``, ``results.json``, ``tables.md``, ``tables.tex`` and ``scores.safetensors``."""
    folder.mkdir(parents=True, exist_ok=True)
    csv = io.StringIO()
    write_csv(csv, map(_record, run.rows), ["model", "method", *_COLUMNS])
    texts = {
        "results.csv": csv.getvalue(),
        "results.json": json.dumps(_document(run), indent=1, allow_nan=False) + "\n",
        "tables.md": markdown(run),
        "tables.tex": latex(run),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    scores = {
        f"{model.model}/{method}/{name}": values
        for model in run.models
        for method, sets in model.scores.items()
        for name, values in sets.items()
    }
    save_file(scores, folder / "scores.safetensors")
    return [folder / name for name in (*texts, "scores.safetensors")]


def read(path: Path) -> dict[str, Any]:
    """``results.json`` of a folder, or the file itself."""
    file = path / "results.json" if path.is_dir() else path
    try:
        document: dict[str, Any] = json.loads(file.read_text("utf8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read as a benchmark's results ({error}).") from error
    if (
        not isinstance(document, dict)
        or document.get("format") != FORMAT
        or document.get("format_version") != FORMAT_VERSION
    ):
        raise InputError(f"{file} is not a results.json of adascale bench that this version can read.")
    return document


def markdown(run: Run) -> str:
    """One table a network, one for all where there are several; best in bold, second underlined."""
    marks = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
    parts = [f"# {run.suite}\n"]
    for title, header, lines in _tables(run, marks, in_markdown):
        parts.append(f"## {title}\n\n{markdown_table(header, lines)}")
    parts.append(_notes(run))
    return "\n".join(parts)


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    rule = "|".join(["---", *["---:"] * (len(header) - 1)])
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"| {' | '.join(header)} |\n|{rule}|\n{body}\n"


def latex(run: Run) -> str:
    """The same as ``tabular`` environments."""
    marks = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
    parts = []
    for title, header, lines in _tables(run, marks, _latex):
        body = "\n".join(f"{' & '.join(line)} \\\\" for line in lines)
        columns = "l" + "r" * (len(header) - 1)
        parts.append(
            f"% {run.suite}, {title}: FPR@95 / AUROC in percent\n\\begin{{tabular}}{{{columns}}}\n\\hline\n"
            f"{' & '.join(map(_latex, header))} \\\\\n\\hline\n{body}\n\\hline\n\\end{{tabular}}\n"
        )
    return "\n".join(parts)


def for_people(run: Run, model: ModelRun) -> Table:
    """One network's means for the terminal."""
    accuracy = "" if model.accuracy is None else f", accuracy {100 * model.accuracy:.2f} %"
    title = f"{run.suite}: {model.model}{accuracy}\nFPR@95 / AUROC in percent"
    lines = Table("method", title=title, title_justify="left", title_style="")
    rows = [row for row in run.rows if row.model == model.model and row.dataset in MEANS.values()]
    for spectrum, name in dict.fromkeys((row.spectrum, row.dataset) for row in rows):
        lines.add_column(_group_name(name, spectrum), justify="right")
    for method in model.scores:
        own = (row for row in rows if row.method == method)
        lines.add_row(method, *(f"{100 * row.fpr95:.2f} / {100 * row.auroc:.2f}" for row in own))
    return lines


def _group_name(name: str, spectrum: Spectrum) -> str:
    return name.replace("ood", "-OOD") + (", full spectrum" if spectrum == "full" else "")


def _tables(run: Run, marks: Mapping[str, str], escape: Any = str) -> Iterable[tuple[str, list[str], list[list[str]]]]:
    """(title, header, lines) with the marks put in."""
    for model in run.models:
        rows = [row for row in run.rows if row.model == model.model]
        yield model.model, *_table(rows, marks, escape, spread=False)
    if len(run.models) > 1:
        yield f"mean and deviation over {len(run.models)} networks", *_table(run.rows, marks, escape, spread=True)


def _table(
    rows: Sequence[Row], marks: Mapping[str, str], escape: Any, spread: bool
) -> tuple[list[str], list[list[str]]]:
    figures, methods = over_models(rows), list(dict.fromkeys(row.method for row in rows))
    networks = {method: len({row.model for row in rows if row.method == method}) for method in methods}
    most = max(networks.values())
    spectra: tuple[Spectrum, ...] = ("ood", "full")
    groups = [(name, spectrum) for spectrum in spectra for name in MEANS.values()]
    groups = [group for group in groups if (methods[0], *group) in figures]
    columns = []
    for name, spectrum in groups:
        for figure in _SUMMARY:
            values = [figures[method, name, spectrum][figure] for method in methods]
            texts = [f"{100 * mean:.2f}" + (f" ± {100 * std:.2f}" if spread else "") for mean, std in values]
            # A method that is missing on some networks is not ranked: its mean is over others.
            rivals = [
                round(100 * v[0], 2) if networks[m] == most else None for m, v in zip(methods, values, strict=True)
            ]
            best = ranked(rivals, _LOWER_IS_BETTER[figure])
            columns.append([marks[mark].format(text) for mark, text in zip(best, texts, strict=True)])
    header = ["method", *(f"{_group_name(*group)} {title}" for group in groups for title in _SUMMARY.values())]
    labels = [m if networks[m] == most else f"{m} ({networks[m]} of {most} networks)" for m in methods]
    return header, [[escape(label), *cells] for label, *cells in zip(labels, *columns, strict=True)]


def ranked(values: Sequence[float | None], lower_is_better: bool) -> list[str]:
    """``best``, ``second`` or nothing for each value; equal values share a place, None has none."""
    order = sorted({value for value in values if value is not None}, reverse=not lower_is_better)[:2]
    places = dict(zip(order, ("best", "second"), strict=False))
    return ["" if value is None else places.get(value, "") for value in values]


def _notes(run: Run) -> str:
    lines = [
        "Percent. FPR@95: share of ID flagged where 95 % of the OOD is caught (as OpenOOD). Unweighted means over sets."
    ]
    for model in run.models:
        sizes = ", ".join(f"{in_markdown(name)} {info.images} ({info.kind})" for name, info in model.sets.items())
        lines.append(f"Images, {model.model}: {sizes}.")
        lines += [f"Left out, {model.model}: {label}: {reason}" for label, reason in model.left_out.items()]
    if note := run.reproduce.get("suite", {}).get("note"):
        lines.append(note)
    return "\n\n".join(lines) + "\n"


def _record(row: Row) -> dict[str, Any]:
    """Shares as percent, as OpenOOD writes them, with more digits."""
    values = asdict(row)
    record = {column: values[name] for column, name in _COLUMNS.items()}
    text = {name: f"{100 * value:.4f}" for name, value in record.items() if isinstance(value, float)}
    return {"model": row.model, "method": row.method, **record, **text}


def _document(run: Run) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "suite": run.suite,
        "reproduce": run.reproduce,
        "failures": {
            model.model: {name: dict(info.failures) for name, info in model.sets.items() if info.failures}
            for model in run.models
        },
        "rows": [asdict(row) for row in run.rows],
    }


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    return "".join(special.get(c) or (f"\\{c}" if c in "_&%#${}" else c) for c in text)


def in_markdown(text: str) -> str:
    """The text with what Markdown would take for something else written out."""
    return text.replace("|", "\\|").replace("<", "&lt;")
