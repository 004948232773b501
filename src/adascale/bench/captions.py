"""The captions of a benchmark's tables in a paper: what a table shows and how to read it, without names of files."""

from __future__ import annotations

from collections.abc import Sequence

from adascale.bench.columns import Look
from adascale.bench.headline import in_text
from adascale.report.document import Column, Table

_FPR95 = {
    "FPR@95": "FPR@95 is the share of ID images that are flagged where 95 % of the OOD images are caught.",
    "FPR@95-ID": "FPR@95-ID is the share of OOD images that are accepted where 95 % of the ID images are kept.",
}  # there are two meanings, and papers differ in which one they print


def caption(suite: str, networks: Sequence[str], table: Table, look: Look) -> str:
    """The caption of the summary of one network, or of the mean over several."""
    quantities = list(dict.fromkeys(column.title for column in table.columns))
    network = f"{len(networks)} networks" if len(networks) > 1 else networks[0]
    with_network = "" if network == suite else f" with {network}"
    kinds = listed(list(dict.fromkeys(in_text(column.group.partition(",")[0]) for column in table.columns)))
    figures = f"{listed(quantities)} in percent, means over the {kinds} sets"
    if len(networks) > 1:
        figures += ", with the mean ± standard deviation over the networks"
    methods = len(table.lines) + len(table.rest)
    among = f" of all {methods} methods" if table.rest else ""
    sentences = [
        f"OOD detection on {suite}{with_network}: {figures}.",
        *(_FPR95[quantity] for quantity in quantities if quantity in _FPR95),
        f"In each column the best value{among} is bold and the second best is underlined.",
        _cut(table, methods, look),
    ]
    return " ".join(filter(None, sentences))


def _cut(table: Table, methods: int, look: Look) -> str:
    """Which of the methods are shown; nothing where all are."""
    top = look.top or methods
    below = [line.whole_label for line in table.lines[top:]]
    if not table.rest and not below:
        return ""
    sort = look.sorted_by([*(column.key for column in table.columns), *table.lines[0].cells])
    count, verb = ("", "is") if top == 1 else (f"{top} ", "are")
    first = f"the first {count}".strip() if sort is None else f"the {count}best by {_named(sort)}"
    kept = f", and {listed(below)}" if below else ""
    return f"Of {methods} methods, {first} {verb} shown{kept}."


def _named(column: Column) -> str:
    return f"{in_text(column.group)} {column.title}"


def listed(texts: Sequence[str]) -> str:
    """Texts with commas, and an "and" before the last."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))
