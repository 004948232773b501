"""``adascale bench`` and ``adascale compare``."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from adascale.bench import tables
from adascale.bench.compare import compare as comparison
from adascale.bench.figures import run_jobs
from adascale.bench.results import Run
from adascale.bench.run import Job
from adascale.cli import options
from adascale.cli.cache import settle
from adascale.cli.commands import BenchCommand, CompareCommand
from adascale.cli.console import end, resumable, say
from adascale.cli.images import suite_images
from adascale.cli.networks import networks
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.core.folders import cache_folder
from adascale.decision.tuning import FEWEST_IMAGES
from adascale.network.ready import usable_device
from adascale.report.terminal import compact


def bench(given: BenchCommand) -> None:
    """Run every method on every network, write the tables and the report, print the table."""
    if given.report:
        optional("matplotlib", "report")  # before the work, not after it
    usable_device(given.device)
    entries = list(options.entries(given.method or ["all"], given.setting or [], given.preset, given.tune))
    suite, images = suite_images(given.suite, given)
    if given.tune == "ood" and not images.ood_val:
        raise InputError("--tune ood: there are no OOD validation images; give a suite that has them, or --tune self.")
    if given.tune == "self" and len(images.val) < FEWEST_IMAGES:
        raise InputError(f"--tune self with {len(images.val)} validation images; it needs at least {FEWEST_IMAGES}.")
    cache, out = given.cache or cache_folder(), given.out
    found = networks(given, given.suite, given.classes)
    with resumable():
        jobs = [Job(network, images, entries, cache, given.seed, given.passes()) for network in found]
        result = run_jobs(suite, images, jobs)
    files = tables.write_results(result, out)
    if given.report:
        from adascale.bench.page import write_report

        write_report(result, out / "report.html")
        files.append(out / "report.html")
    if given.as_json:
        print(json.dumps(tables.as_json(result)))
    else:
        _print(result)
        say("wrote " + ", ".join(map(str, files)))
    settle(cache, given.cache_limit)
    sets = [info for model in result.models for info in model.sets.values()]
    failed = sum(len(info.failures) for info in sets)
    end(failed, sum(info.images for info in sets) + failed)


def compare(given: CompareCommand) -> None:
    """Print what moved between two benchmarks, largest change first."""
    found = comparison(given.first, given.second, given.every_set)
    if given.as_json:
        rows = [{**row._asdict(), "change": row.change} for row in found.moved]
        print(json.dumps({**found._asdict(), "moved": rows}, default=str))
        return
    if found.other_sets:
        say(f"note: the sets differ ({', '.join(found.other_sets)}), so their means cannot be compared.")
    lines = Table(box=None, pad_edge=False)
    for title in ("method", "set", "AUROC", "", "change", "FPR@95", ""):
        lines.add_column(title, justify="left" if title in ("method", "set") else "right")
    for row in found.moved:
        name = row.dataset + (" (full spectrum)" if row.spectrum == "full" else "")
        auroc, fpr95 = ([f"{value:.2f}" for value in pair] for pair in (row.auroc, row.fpr95))
        lines.add_row(f"{row.model} {row.method}".strip(), name, *auroc, f"{row.change:+.2f}", *fpr95)
    Console(highlight=False).print(lines)
    for path, names in zip((given.first, given.second), found.only, strict=True):
        if names:
            print(f"only in {path}: {', '.join(names)}")
    for name, (a, b) in found.settings.items():
        print(f"{name}: {a} -> {b}")


def _print(run: Run) -> None:
    for model in run.models:
        Console(highlight=False).print(compact(tables.for_terminal(run, model)))
        for label, reason in model.left_out.items():
            say(f"left out {model.model} {label}: {reason}" if len(run.models) > 1 else f"left out {label}: {reason}")
