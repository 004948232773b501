"""The report of a benchmark: one HTML page that needs nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from adascale.bench import plots
from adascale.bench.columns import BOTH, KINDS, Kind, Look, Spectrum
from adascale.bench.evidence import evidence_table
from adascale.bench.results import ModelRun, Row, Run
from adascale.bench.tables import absences, leads, mean_summary, per_set, summaries
from adascale.report import html
from adascale.report.document import Table
from adascale.storage.atomic import write_text


def write_report(run: Run, path: Path | str, look: Look = Look()) -> None:
    """Write the page: whole or not at all. The same run and look give the same bytes."""
    write_text(Path(path), report_page(run, look))


def report_page(run: Run, look: Look = Look()) -> str:
    """The page as text. Its tables have all columns; they are sorted and cut as the look says."""
    look = replace(look, columns=())
    mean = mean_summary(run, "Mean over the networks", BOTH, look) if len(run.models) > 1 else None
    return html.page(
        "benchmark.html", run=run, kinds=KINDS, mean=mean, summaries=summaries(run, BOTH, look),
        sets=_sets(run, look), leads=leads(run), absences={model.model: absences(model) for model in run.models},
        networks=[_network(model) for model in run.models],
    )  # fmt: skip


def _sets(run: Run, look: Look) -> dict[tuple[str, Kind], dict[Spectrum, Table]]:
    """The tables of each OOD set: without and with shifted ID images on the ID side."""
    groups: dict[tuple[str, Kind], dict[Spectrum, list[Row]]] = {}
    for row in run.rows:
        if not row.is_mean:
            groups.setdefault((row.dataset, row.kind), {}).setdefault(row.spectrum, []).append(row)
    several = len({row.model for row in run.rows}) > 1
    kept = {model.model: [model.kept] for model in run.models}
    return {
        name: {spectrum: per_set(rows, several, look, kept) for spectrum, rows in spectra.items()}
        for name, spectra in groups.items()
    }


def _network(run: ModelRun) -> dict[str, Any]:
    """The charts of one network; none of scores or of AdaSCALE's quantities where there are none of these."""
    methods = plots.compared(run) if plots.ood_sets(run) else []
    return {
        "run": run,
        "histograms": {method: plots.histograms(run, [method]) for method in methods},
        "curves": plots.roc_curves(run, methods),
        "inside": plots.inside(run),
        "evidence": evidence_table(run),
    }
