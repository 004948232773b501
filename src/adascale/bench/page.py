"""The report of a benchmark: one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adascale.bench import plots
from adascale.bench.answer import answers, base, deployed_chart, deployed_table, ranking
from adascale.bench.answer import summaries as methods_known
from adascale.bench.columns import BOTH, KINDS, Kind, Look, Spectrum
from adascale.bench.evidence import evidence_table
from adascale.bench.premise import premise
from adascale.bench.results import ModelRun, Row, Run
from adascale.bench.tables import absences, leads, mean_summary, per_set, summaries
from adascale.report import html
from adascale.report.document import Cell, Chart, Column, Line, Table
from adascale.storage.atomic import write_text


def write_report(run: Run, path: Path | str, look: Look = Look()) -> None:
    """Write the page: whole or not at all. The same run and look give the same bytes."""
    write_text(Path(path), report_page(run, look))


def report_page(run: Run, look: Look = Look()) -> str:
    """The page as text. Its tables have all columns; they are sorted and cut as the look says."""
    look = replace(look, columns=())
    mean = mean_summary(run, "Mean over the networks", BOTH, look) if len(run.models) > 1 else None
    own, networks = summaries(run, BOTH, look), [_network(run, model) for model in run.models]
    heat = [_heat(run, model, table) for model, table in zip(run.models, own, strict=True)]
    heat = [table for table in heat if table.lines]
    return html.page(
        "benchmark.html", run=run, kinds=KINDS, mean=None if mean is None else hinted(mean),
        summaries=[hinted(table) for table in own], sets=_sets(run, look), leads=leads(run), heat=heat,
        absences={model.model: absences(model) for model in run.models}, networks=networks, depths_of=_depths,
        glossary=_glossary(run), contents_of=_contents(run, networks, bool(heat)),
    )  # fmt: skip


def run_html(run: Run) -> str:
    """The run as a notebook shows it: who leads, and the sortable table of every network."""
    tables = [hinted(table) for table in summaries(run, BOTH, Look())]
    return html.fragment("run.html", leads=leads(run), tables=tables)


def hinted(table: Table) -> Table:
    """The table with what each method is, for who points at its name."""
    known = methods_known()
    lines = [replace(line, hint=known.get(base(line.label), {}).get("summary", "")) for line in table.lines]
    return replace(table, lines=lines)


def _glossary(run: Run) -> dict[str, str]:
    """What the methods of the run are, by name, in the order of the rows; none that the registry does not know."""
    known = methods_known()
    names = dict.fromkeys(base(row.method) for row in run.rows)
    return {name: f"{one['summary']} ({one['passes']}; fitted on: {one['fitted_on']})" for name in names
            if (one := known.get(name))}  # fmt: skip


def _contents(run: Run, networks: Sequence[Mapping[str, Any]], heat: bool) -> list[tuple[str, str]]:
    """The table of contents: address and title of every part that is there."""
    found = [("answer", "The answer"), ("summary", "Summary")]
    found += [("heat", "Methods by sets")] if heat else []
    found += [("sets", "Each data set")]
    if len(networks) > 1:
        found += [(f"network-{place}", one["run"].model) for place, one in enumerate(networks, start=1)]
    for one in networks if len(networks) == 1 else ():
        model: ModelRun = one["run"]
        parts = {
            "deployed": ("At the threshold", one["deployed"]), "scores": ("Scores", one["curves"]),
            "roc": ("ROC curves", one["curves"]), "members": ("Which member spoke", one["evidence"]),
            "inside": ("Inside AdaSCALE", one["inside"]), "hardest": ("Hardest images", any(model.examples.values())),
        }  # fmt: skip
        found += [(address, title) for address, (title, there) in parts.items() if there]
    return [*found, ("reproduce", "Reproduce")]


def _heat(run: Run, model: ModelRun, summary: Table) -> Table:
    """The AUROC of every method of the summary, in its order, on every OOD set."""
    rows = [row for row in run.rows if row.model == model.model and row.spectrum == "ood" and not row.is_mean]
    sets = {row.dataset: row.kind for row in rows}
    columns = [Column(name, name, KINDS[kind], good="high") for name, kind in sets.items()]
    by_method: dict[str, dict[str, Cell]] = {}
    for row in rows:
        by_method.setdefault(row.method, {})[row.dataset] = Cell(100 * row.auroc)
    lines = [Line(one.label, by_method[one.label]) for one in summary.lines if one.label in by_method]
    return hinted(Table(f"AUROC on every set, {model.model}", columns, lines, head="method"))


def _depths(table: Table) -> Callable[[str], str]:
    """How deep the colour of each value is, from the worst of the table to its best."""
    values = [cell.measured for line in table.lines for cell in line.cells.values() if cell.measured is not None]
    low, high = min(values), max(values)
    return lambda value: f"{(float(value) - low) / ((high - low) or 1):.3f}"


def _sets(run: Run, look: Look) -> dict[tuple[str, Kind], dict[Spectrum, Table]]:
    """The tables of each OOD set: without and with shifted ID images on the ID side."""
    groups: dict[tuple[str, Kind], dict[Spectrum, list[Row]]] = {}
    for row in run.rows:
        if not row.is_mean:
            groups.setdefault((row.dataset, row.kind), {}).setdefault(row.spectrum, []).append(row)
    several = len({row.model for row in run.rows}) > 1
    kept = {model.model: [model.kept] for model in run.models}
    return {
        name: {spectrum: hinted(per_set(rows, several, look, kept)) for spectrum, rows in spectra.items()}
        for name, spectra in groups.items()
    }


def _histograms(model: ModelRun, name: str, methods: Sequence[str]) -> list[Chart]:
    """The scores on one set, one method beside the other."""
    size = plots.panel(len(methods))
    found = {method: plots.histograms(model, [method], [name])[0] for method in methods}
    return [replace(chart, title=method, size=size) for method, chart in found.items()]


def _network(run: Run, model: ModelRun) -> dict[str, Any]:
    """The charts of one network; none of scores or of AdaSCALE's quantities where there are none of these."""
    methods = plots.compared(model) if plots.ood_sets(model) else []
    inside = plots.inside(model)
    return {
        "run": model,
        "answers": answers(run, model),
        "ranking": ranking(run, model),
        "deployed": deployed_table(model),
        "deployed_chart": deployed_chart(model),
        "histograms": {name: _histograms(model, name, methods) for name in (plots.ood_sets(model) if methods else ())},
        "curves": plots.roc_curves(model, methods),
        "inside": inside,
        "premise": premise(model) if inside else "",
        "evidence": evidence_table(model),
    }
