"""``adascale bench``, ``adascale tune`` and ``adascale compare``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from adascale.bench import tables
from adascale.bench.compare import compare as compared
from adascale.bench.figures import run_jobs
from adascale.bench.results import Run
from adascale.bench.run import Entry, Job
from adascale.bench.suites import SUITES, SuiteImages, drawn, named
from adascale.cli import options
from adascale.cli.console import AsJson, BatchSize, Crop, Device, Mean, Size, Std, Workers, app, end, resumable, say
from adascale.cli.inputs import (
    Available,
    Cache,
    Data,
    Far,
    Head,
    IdImages,
    Limit,
    ManyWeights,
    Models,
    Near,
    Preset,
    Seed,
    Settings,
    Shifted,
    SuiteName,
    Train,
    Val,
    check_places,
    networks,
    opened,
)
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.decision.tuning import FEWEST_IMAGES
from adascale.extraction.cache import cache_folder
from adascale.images.sources import find_images
from adascale.report.terminal import compact
from adascale.storage.journal import write_csv


@app.command()
def bench(
    suite: SuiteName = None,
    model: Models = None,
    weights: ManyWeights = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("adascale-bench"),
    methods: Annotated[list[str] | None, typer.Option(help="Names, repeatable or with commas [default: all].")] = None,
    setting: Settings = None,
    preset: Preset = None,
    tune: Annotated[
        Literal["none", "self", "ood"],
        typer.Option(help="Tuned lines too: on outliers made from the ID images, or on the suite's OOD-val."),
    ] = "none",
    id_images: IdImages = None,
    val: Val = None,
    train: Train = None,
    near: Near = None,
    far: Far = None,
    shifted: Shifted = None,
    data: Data = None,
    available: Available = False,
    limit: Limit = None,
    cache: Cache = None,
    report: Annotated[bool, typer.Option(help="Write report.html, which needs matplotlib.")] = True,
    head: Head = None,
    size: Size = None,
    crop: Crop = None,
    mean: Mean = None,
    std: Std = None,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Compare methods on a suite: one network pass an image (and one for each view), every method, one table."""
    if report:
        optional("matplotlib", "report")  # better now than after the work
    check_places(out, cache)
    chosen, images = opened(suite, (id_images, val, train, near, far, shifted), data, available, limit, seed)
    entries = list(options.entries(methods or ["all"], setting or [], preset, tune))
    if tune == "ood" and not images.ood_val:
        raise InputError("--tune ood: there are no OOD validation images; give a suite that has them, or --tune self.")
    if tune == "self" and len(images.val) < FEWEST_IMAGES:
        raise InputError(f"--tune self with {len(images.val)} validation images; it needs at least {FEWEST_IMAGES}.")
    passes = {"batch_size": batch_size, "workers": workers}
    found = networks(model, weights, head, device, suite, (size, crop, mean, std))
    folder = cache or cache_folder()
    jobs = [Job(network, images, entries, folder, seed, passes) for network in found]
    with resumable():
        result = run_jobs(chosen, images, jobs)
    files = tables.write_results(result, out)
    if report:
        from adascale.bench.page import write_report

        write_report(result, out / "report.html")
        files.append(out / "report.html")
    failed = [name for found in result.models for info in found.sets.values() for name in info.failures]
    if as_json:
        print(json.dumps(tables.as_json(result)))
    else:
        _print(result)
        say("wrote " + ", ".join(map(str, files)))
        say(f"activations are kept in {folder}")
    end(len(failed), sum(info.images for found in result.models for info in found.sets.values()) + len(failed))


@app.command()
def tune(
    suite: SuiteName = None,
    model: Models = None,
    weights: ManyWeights = None,
    method: Annotated[str, typer.Option(help="See adascale methods.")] = "adascale_a",
    grid: Annotated[
        str | None,
        typer.Option(help="one-knob, paper, pairs, or 'p_min=60,65 p_max=80,85' [default: the method's search space]."),
    ] = None,
    setting: Settings = None,
    by: Annotated[
        Literal["self", "ood"] | None,
        typer.Option(
            help="Judge by outliers made from the ID images, or by OOD-val [default: ood where there is any]."
        ),
    ] = None,
    id_images: IdImages = None,
    train: Train = None,
    ood_val: Annotated[list[str] | None, typer.Option(help="NAME=PATH of OOD validation images; repeatable.")] = None,
    data: Data = None,
    limit: Limit = None,
    cache: Cache = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="CSV file for every point and its AUROC.")] = None,
    head: Head = None,
    size: Size = None,
    crop: Crop = None,
    mean: Mean = None,
    std: Std = None,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Choose a method's parameters on ID images alone, or with OOD validation images, as OpenOOD does."""
    check_places(None, cache)
    if out is not None and not out.parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {out.parent}; make it first.")
    images, name = _tuning_images(suite, id_images, train, ood_val, data, limit, seed)
    given = options.settings([method], setting or [], None)[method]
    configured = options.configured(method, given)
    network, *others = networks(model, weights, head, device, name, (size, crop, mean, std))
    if others:
        raise InputError(f"{1 + len(others)} networks; tune one at a time.")
    passes = {"batch_size": batch_size, "workers": workers}
    entry = Entry(method, configured, given=frozenset(given))
    job = Job(network, images, [entry], cache or cache_folder(), seed, passes)
    entry = job.entries[0]
    with resumable():
        found = job.tune(entry.method, options.points(entry, grid), by or ("ood" if images.ood_val else "self"))
    trials = [{**point, "AUROC": f"{100 * auroc:.4f}"} for point, auroc in found.trials]
    if out is not None:
        with open(out, "w", encoding="utf8", newline="") as file:
            write_csv(file, trials, list(trials[0]))
    settings = " ".join(f"--set {key}={value}" for key, value in {**given, **found.chosen}.items())
    if as_json:
        record = {"chosen": found.chosen, "auroc": found.auroc, "default_auroc": found.default_auroc}
        print(json.dumps({"method": method, **record, "judged_by": found.judged_by, "trials": found.trials}))
        return
    shown = sorted(found.trials, key=lambda trial: -trial[1])[:10]
    lines = Table(*found.chosen, "AUROC", box=None, pad_edge=False)
    for point, auroc in shown:
        lines.add_row(*map(str, point.values()), f"{100 * auroc:.2f}")
    Console(highlight=False).print(lines)
    print(f"\n{method} {found}\nUse it: adascale fit ... --method {method} {settings}")


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="The results folder of a benchmark.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    every_set: Annotated[bool, typer.Option("--all", help="Every set, not only the means.")] = False,
    as_json: AsJson = False,
) -> None:
    """Two benchmarks side by side: what moved, what was set differently."""
    found = compared(first, second, every_set)
    if as_json:
        rows = [{**row._asdict(), "change": row.change} for row in found.moved]
        print(
            json.dumps(
                {"moved": rows, "only": found.only, "settings": found.settings, "other_sets": found.other_sets},
                default=str,
            )
        )
        return
    if found.other_sets:
        say(f"note: the sets differ ({', '.join(found.other_sets)}), so means over them are of different things.")
    lines = Table(box=None, pad_edge=False)
    for title in ("method", "set", "AUROC", "", "change", "FPR@95", ""):
        lines.add_column(title, justify="left" if title in ("method", "set") else "right")
    for row in found.moved:
        name = row.dataset + (" (full spectrum)" if row.spectrum == "full" else "")
        cells = (
            [f"{value:.2f}" for value in row.auroc] + [f"{row.change:+.2f}"] + [f"{value:.2f}" for value in row.fpr95]
        )
        lines.add_row(f"{row.model} {row.method}".strip(), name, *cells)
    Console(highlight=False).print(lines)
    for path, names in zip((first, second), found.only, strict=True):
        if names:
            print(f"only in {path}: {', '.join(names)}")
    for name, (a, b) in found.settings.items():
        print(f"{name}: {a} -> {b}")


def _tuning_images(
    name: str | None,
    id_images: str | None,
    train: str | None,
    ood_val: list[str] | None,
    data: Path | None,
    limit: int | None,
    seed: int,
) -> tuple[SuiteImages, str | None]:
    """A suite's validation images, or one's own ID images, of which none are tested here."""
    if name is not None:
        return opened(name, (id_images, None, train, None, None, None), data, True, limit, seed)[1], name
    if id_images is None:
        raise InputError(f"Give either a suite ({', '.join(SUITES)}, a TOML file) or --id, one of the two.")
    found = drawn(find_images(id_images), limit, seed)
    unknown = {label: drawn(find_images(place), limit, seed) for label, place in map(named, ood_val or [])}
    return SuiteImages(found, found, find_images(train) if train else None, {}, {}, {}, unknown), None


def _print(run: Run) -> None:
    for model in run.models:
        Console(highlight=False).print(compact(tables.for_terminal(run, model)))
        for label, reason in model.left_out.items():
            say(f"left out {model.model} {label}: {reason}" if len(run.models) > 1 else f"left out {label}: {reason}")
