"""Which member of a combined method spoke: its evidence on every set, as a table."""

from __future__ import annotations

import torch

from adascale.bench.columns import KINDS
from adascale.bench.results import ModelRun
from adascale.report.document import Cell, Column, Line, Table

_MEAN, _MOST = "Mean evidence", "Adds the most, in % of the images"


def evidence_table(run: ModelRun) -> Table | None:
    """For every set the mean evidence of each member, and in which share of the images it adds the most.

    Images with infinite evidence, whose activations are not finite, are left out. None if no method combines others.
    """
    if not run.evidence:
        return None
    members = list(next(iter(run.evidence.values())))
    columns = [Column(f"mean.{name}", name, _MEAN, unit="", hint="what it adds to the score") for name in members]
    columns += [Column(f"most.{name}", name, _MOST, hint="images to whose score it adds most") for name in members]
    lines = []
    for dataset, found in run.evidence.items():
        table = torch.stack([found[name] for name in members], 1)
        table = table[table.isfinite().all(1)]
        if not len(table):
            continue
        strongest = torch.bincount(table.argmax(1), minlength=len(members)) * 100 / len(table)
        cells = {f"mean.{name}": Cell(float(mean)) for name, mean in zip(members, table.mean(0), strict=True)}
        cells |= {f"most.{name}": Cell(float(share)) for name, share in zip(members, strongest, strict=True)}
        lines.append(Line(dataset, cells, rivals=None, remark=KINDS[run.sets[dataset].kind]))
    return Table("Evidence of the members", columns, lines, head="data set")
