"""``adascale bench`` and ``adascale tune``."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from adascale import detectors
from adascale.bench import tables
from adascale.bench.columns import Look
from adascale.bench.figures import run_jobs
from adascale.bench.headline import headline, mean_headline
from adascale.bench.results import Run
from adascale.bench.run import Entry, Job
from adascale.bench.suites import SuiteImages
from adascale.cli import options
from adascale.cli.checks import column_names
from adascale.cli.commands import BenchCommand, TuneCommand
from adascale.cli.console import end, resumable, say
from adascale.cli.images import suite_images, tuning_images
from adascale.cli.networks import networks
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.core.folders import cache_folder
from adascale.decision.tuning import FEWEST_IMAGES
from adascale.detectors import Detector
from adascale.detectors.configure import configured
from adascale.report.terminal import compact
from adascale.storage.rows import write_csv


def bench(given: BenchCommand) -> None:
    """Run every method on every network, write the tables and the report, print the table."""
    if given.report:
        optional("matplotlib", "report")  # before the work, not after it
    look = Look(given.sort, given.top, column_names(given.columns))
    suite, images = suite_images(given.suite, given)
    asked = given.methods or ["all"], given.setting or [], given.preset
    entries = list(options.entries(*asked, given.tune, given.untuned))
    _say_fitted_on(given, images, (entry.method for entry in entries))
    if given.tune == "ood" and not images.ood_val:
        raise InputError("--tune ood: there are no OOD validation images; give a suite that has them, or --tune self.")
    if given.tune == "self" and len(images.val) < FEWEST_IMAGES:
        raise InputError(f"--tune self with {len(images.val)} validation images; it needs at least {FEWEST_IMAGES}.")
    cache, out = given.cache or cache_folder(), given.out
    found = networks(given, given.suite)
    with resumable():
        jobs = [Job(network, images, entries, cache, given.seed, given.passes()) for network in found]
        result = run_jobs(suite, images, jobs)
    files = tables.write_results(result, out, look)
    if given.report:
        from adascale.bench.page import write_report

        write_report(result, out / "report.html", look)
        files.append(out / "report.html")
    if given.as_json:
        print(json.dumps(tables.as_json(result)))
    else:
        _print(result, look)
        say("wrote " + ", ".join(map(str, files)))
        say(f"activations are kept in {cache}")
    sets = [info for model in result.models for info in model.sets.values()]
    failed = sum(len(info.failures) for info in sets)
    failed += sum(len(found) for model in result.models for found in model.unreadable.values())
    end(failed, sum(info.images for info in sets) + failed)


def tune(given: TuneCommand) -> None:
    """Search one method's parameters on one network and print the best points."""
    if given.out is not None and not given.out.parent.is_dir():
        raise InputError(f"--out {given.out}: there is no folder {given.out.parent}; make it first.")
    images = tuning_images(given.suite, given, given.ood_val)
    name = detectors.get(given.method).name
    fixed = options.settings({name: given.method}, given.setting or [], None)[name]
    method = configured(given.method, fixed)
    network, *others = networks(given, given.suite)
    if others:
        raise InputError(f"{1 + len(others)} networks; tune one at a time.")
    entries = [Entry(name, method, given=frozenset(fixed))]
    job = Job(network, images, entries, given.cache or cache_folder(), given.seed, given.passes())
    entry, judge = job.entries[0], given.by or ("ood" if images.ood_val else "self")
    with resumable():
        found = job.tune(entry.method, options.points(entry, given.grid), judge)
    if given.out is not None:
        trials = [{**point, "AUROC": f"{100 * auroc:.4f}"} for point, auroc in found.trials]
        with open(given.out, "w", encoding="utf8", newline="") as file:
            write_csv(file, trials, list(trials[0]))
    if given.as_json:
        record = {"chosen": found.chosen, "auroc": found.auroc, "default_auroc": found.default_auroc}
        print(json.dumps({"method": name, **record, "judged_by": found.judged_by, "trials": found.trials}))
        return
    lines = Table(*found.chosen, "AUROC", box=None, pad_edge=False)
    for point, auroc in sorted(found.trials, key=lambda trial: -trial[1])[:10]:
        lines.add_row(*map(str, point.values()), f"{100 * auroc:.2f}")
    Console(highlight=False).print(lines)
    settings = " ".join(f"--set {key}={value}" for key, value in {**fixed, **found.chosen}.items())
    print(f"\n{name} {found}\nUse it: adascale fit ... --method {given.method} {settings}")


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
