"""``adascale tune``: the parameters of methods, searched on one network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from adascale.bench.run import Entry, Job
from adascale.cli import options
from adascale.cli.cache import settle
from adascale.cli.checks import method_names
from adascale.cli.commands import TuneCommand
from adascale.cli.console import resumable, say
from adascale.cli.images import tuning_images
from adascale.cli.networks import listed, networks
from adascale.cli.workers import executor_of
from adascale.core.errors import InputError
from adascale.core.folders import cache_folder
from adascale.decision.tuning import Point, Tuning
from adascale.network.ready import usable_device
from adascale.storage.atomic import replacing
from adascale.storage.rows import write_csv


class _Search(NamedTuple):
    """A method and the points to try. text: the method as it was given."""

    entry: Entry
    points: list[Point]
    text: str


def tune(given: TuneCommand) -> None:
    """Search the parameters of each method on one network and print the best points.

    With ``--method all`` a method that has nothing to tune, or that these images do not suffice for, is left out.
    """
    usable_device(given.device)
    asked = given.method or ["adascale_a"]
    among_all = "all" in asked
    searches = _searches(asked, given.setting or [], given.grid, among_all)
    images = tuning_images(given.suite, given, given.ood_val)
    if given.by == "ood" and not images.ood_val:
        raise InputError("--by ood: there are no OOD validation images; give --ood-val, or --by self.")
    if (count := len(listed(given, given.suite))) > 1:
        raise InputError(f"{count} networks; tune one at a time.")
    cache, found = given.cache or cache_folder(), list[tuple[_Search, Tuning]]()
    with resumable(), executor_of(given) as executor:
        (network,) = networks(given, given.suite, executor=executor)
        job = Job(network, images, [search.entry for search in searches], cache, given.seed, given.passes())
        for search, entry in zip(searches, job.entries, strict=True):
            try:
                judge = given.by or ("ood" if images.ood_val else "self")
                found.append((search, job.tune(entry.method, search.points, judge)))
            except InputError as error:
                _leave_out(search.entry.label, error, among_all)
    if given.out is not None:
        _write_trials(given.out, found)
    if given.as_json:
        records = [_record(*one) for one in found]
        print(json.dumps(records[0] if len(searches) == 1 else records))
    else:
        for one in found:
            _print(*one)
    settle(cache, given.cache_limit)


def _searches(texts: list[str], settings: list[str], grid: str | None, among_all: bool) -> list[_Search]:
    found = []
    for entry, text in zip(options.searched(texts, settings), method_names(texts), strict=True):
        try:
            found.append(_Search(entry, options.points(entry, grid), text))
        except InputError as error:
            _leave_out(entry.label, error, among_all)
    return found


def _leave_out(label: str, error: InputError, among_all: bool) -> None:
    if not among_all:
        raise error
    say(f"left out {label}: {error}")


def _write_trials(out: Path, found: Sequence[tuple[_Search, Tuning]]) -> None:
    """A line for each point that was tried; with several methods the first column names the method."""
    trials = [
        {**({"method": search.entry.label} if len(found) > 1 else {}), **point, "AUROC": f"{100 * auroc:.4f}"}
        for search, tuning in found
        for point, auroc in tuning.trials
    ]
    names = list(dict.fromkeys(name for trial in trials for name in trial if name != "AUROC"))
    with replacing(out) as temporary, open(temporary, "w", encoding="utf8", newline="") as file:
        write_csv(file, trials, [*names, "AUROC"])


def _record(search: _Search, found: Tuning) -> dict[str, Any]:
    record = {"chosen": found.chosen, "auroc": found.auroc, "default_auroc": found.default_auroc}
    return {"method": search.entry.label, **record, "judged_by": found.judged_by, "trials": found.trials}


def _print(search: _Search, found: Tuning) -> None:
    """The ten best points, and the command that uses the best."""
    entry, lines = search.entry, Table(*found.chosen, "AUROC", box=None, pad_edge=False)
    for point, auroc in sorted(found.trials, key=lambda trial: -trial[1])[:10]:
        lines.add_row(*map(str, point.values()), f"{100 * auroc:.2f}")
    Console(highlight=False).print(lines)
    fixed = {name: value for name, value in entry.method.parameters.items() if name in entry.given}
    settings = " ".join(f"--set {key}={value}" for key, value in {**fixed, **found.chosen}.items())
    print(f"\n{entry.label} {found}\nUse it: adascale fit ... --method {search.text} {settings}")
