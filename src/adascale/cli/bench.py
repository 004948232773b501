"""``adascale bench``."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rich.console import Console

from adascale.bench import tables
from adascale.bench.columns import Look
from adascale.bench.figures import run_jobs
from adascale.bench.headline import headline, mean_headline
from adascale.bench.results import Run
from adascale.bench.run import Job
from adascale.bench.suites import SuiteImages
from adascale.cli import options
from adascale.cli.cache import settle
from adascale.cli.checks import column_names
from adascale.cli.commands import BenchCommand
from adascale.cli.console import end, resumable, say
from adascale.cli.images import suite_images
from adascale.cli.networks import networks
from adascale.cli.workers import executor_of
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.core.folders import cache_folder
from adascale.decision.tuning import FEWEST_IMAGES
from adascale.detectors import Detector
from adascale.network.ready import usable_device
from adascale.report.terminal import compact
from adascale.storage.locks import claimed


def bench(given: BenchCommand) -> None:
    """Run every method on every network, write the tables and the report, print the table."""
    if given.report or given.figures:
        optional("matplotlib", "report")  # before the work, not after it
    usable_device(given.device)
    look = Look(given.sort, given.top, column_names(given.columns))
    asked = given.method or ["all"], given.setting or [], given.preset
    entries = list(options.entries(*asked, given.tune, given.untuned))
    suite, images = suite_images(given.suite, given)
    _say_fitted_on(given, images, (entry.method for entry in entries))
    if given.tune == "ood" and not images.ood_val:
        raise InputError("--tune ood: there are no OOD validation images; give a suite that has them, or --tune self.")
    if given.tune == "self" and len(images.val) < FEWEST_IMAGES:
        raise InputError(f"--tune self with {len(images.val)} validation images; it needs at least {FEWEST_IMAGES}.")
    cache, out = given.cache or cache_folder(), given.out
    with claimed(out, folder=True):
        with resumable(), executor_of(given) as executor:
            found = networks(given, given.suite, given.classes, executor)
            jobs = [Job(network, images, entries, cache, given.seed, given.passes()) for network in found]
            result = run_jobs(suite, images, jobs)
        files = tables.write_results(result, out, look)
        if given.report:
            from adascale.bench.page import write_report

            write_report(result, out / "report.html", look)
            files.append(out / "report.html")
        if given.figures:
            from adascale.bench.plots import save_all

            save_all(result, out / "figures", given.figures)
            files.append(out / "figures")
    if given.as_json:
        print(json.dumps(tables.as_json(result)))
    else:
        _print(result, look)
        say("wrote " + ", ".join(map(str, files)))
    settle(cache, given.cache_limit)
    sets = [info for model in result.models for info in model.sets.values()]
    failed = sum(len(info.failures) for info in sets)
    failed += sum(len(found) for model in result.models for found in model.unreadable.values())
    end(failed, sum(info.images for info in sets) + failed)


def _print(run: Run, look: Look) -> None:
    console = Console(highlight=False)
    several = len(run.models) > 1
    for model in run.models:
        if found := run.standings.get(model.model):
            console.print(f"{headline(found)}\n", soft_wrap=True)
        table = tables.for_terminal(run, model, look)
        console.print(compact(table))
        for line in table.note.splitlines():
            say(line)
        for note in tables.absences(model):
            say(f"{model.model}: {note}" if several else note)
        for label, reason in model.left_out.items():
            say(f"left out {model.model} {label}: {reason}" if several else f"left out {label}: {reason}")
    if several and (text := mean_headline(run.rows)):
        console.print(f"\n{text}", soft_wrap=True)


def _say_fitted_on(given: BenchCommand, images: SuiteImages, methods: Iterable[Detector]) -> None:
    """Which images the methods are fitted on, where the options could make one think of others."""
    now = {"val": len(images.val), **({} if images.train is None else {"train": len(images.train)})}
    learning = sorted({method.name for method in methods if method.fits_on.startswith("train")})
    if not learning:
        now.pop("train", None)
    words = {"val": "validation", "train": "training"}
    if fewer := {name: count for name, count in now.items() if count < images.found.get(name, count)}:
        parts = [f"{count} of {images.found[name]} {words[name]} images" for name, count in fewer.items()]
        who = f"; fewer training images matter for {', '.join(learning)}" if "train" in fewer else ""
        say(f"note: methods are fitted on {' and '.join(parts)} (--limit-fit {given.limit_fit}){who}.")
    elif given.limit is not None and max(now.values()) > given.limit:
        parts = [f"{count} {words[name]}" for name, count in now.items()]
        say(
            f"note: --limit cuts the tested sets; methods are fitted on all {' and '.join(parts)} images (--limit-fit)."
        )
