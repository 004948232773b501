"""``adascale compare``."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from adascale.bench.compare import Differences, Moved
from adascale.bench.compare import compare as comparison
from adascale.cli.console import say
from adascale.cli.research_commands import CompareCommand


def compare(given: CompareCommand) -> None:
    """Print what moved between two benchmarks, largest change first, then what only one of them has."""
    found = comparison(given.first, given.second, given.every_set)
    if given.as_json:
        rows = [_record(row) for row in found.moved]
        print(json.dumps({**found._asdict(), "moved": rows}, default=str))
        return
    for note in found.notes:
        say(f"note: {note}.")
    print(_lead(found))
    changed = [row for row in found.moved if row.auroc[0] != row.auroc[1] or row.fpr95[0] != row.fpr95[1]]
    if changed:
        Console(highlight=False).print(_table(changed))
    moved = {_name(row) for row in changed}
    if same := dict.fromkeys(_name(row) for row in found.moved if _name(row) not in moved):
        print(f"unchanged: {', '.join(same)}")
    for path, names, settings in zip((given.first, given.second), found.only, found.only_settings, strict=True):
        if names or settings:
            print(f"only in {path}: {', '.join([*names, *settings])}")
    for name, (a, b) in found.settings.items():
        print(f"{name}: {a} -> {b}")
    _hint(found)


def _record(row: Moved) -> dict[str, Any]:
    """A row as JSON has it, in percent."""
    own = {name: value for name, value in row._asdict().items() if name != "paired"}
    return {**own, "change": row.change, "interval": row.interval, "beyond_chance": row.beyond_chance}


def _lead(found: Differences) -> str:
    judged = [row for row in found.moved if row.paired is not None]
    moved = sum(row.change != 0 for row in found.moved)
    text = f"{moved} of the {len(found.moved)} AUROCs that both runs have differ"
    if not moved or not judged:
        return f"{text}."
    beyond = sum(bool(row.beyond_chance) for row in judged)
    return f"{text}; {beyond} of them by more than chance (95 % paired bootstrap over the images)."


def _table(rows: list[Moved]) -> Table:
    lines = Table(box=None, pad_edge=False)
    for title in ("method", "set", "AUROC", "", "change", "95 % interval", "chance", "FPR@95", ""):
        lines.add_column(title, justify="left" if title in ("method", "set") else "right", no_wrap=title != "method")
    for row in rows:
        name = row.dataset + (" (full spectrum)" if row.spectrum == "full" else "")
        auroc, fpr95 = ([f"{value:.2f}" for value in pair] for pair in (row.auroc, row.fpr95))
        interval = "" if row.paired is None else row.paired.interval
        verdict = {None: "", True: "beyond", False: "within"}[row.beyond_chance]
        lines.add_row(_name(row), name, *auroc, f"{row.change:+.2f}", interval, verdict, *fpr95)
    return lines


def _name(row: Moved) -> str:
    return f"{row.model} {row.method}".strip()


def _hint(found: Differences) -> None:
    """What to run where one run has a method without tuning and the other has it as ``fit`` tunes it."""
    for mine, theirs in (found.only, found.only[::-1]):
        if names := [name for name in mine if f"{name} (tuned)" in theirs]:
            say(f"note: only one run has {', '.join(names)} without tuning; adascale bench --untuned adds that line.")
