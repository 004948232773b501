"""``adascale study``: the tables and figures of the paper, on any network and suite."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from adascale import detectors
from adascale.bench.run import Network, tested
from adascale.bench.suites import SUITES
from adascale.cli import options
from adascale.cli.console import (
    AsJson,
    BatchSize,
    Crop,
    Device,
    Mean,
    Size,
    Std,
    Workers,
    app,
    end,
    plain_table,
    resumable,
    say,
)
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
    Seed,
    Settings,
    Shifted,
    Train,
    Val,
    check_places,
    networks,
    opened,
)
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.extraction.cache import cache_folder
from adascale.paper import figures as paper
from adascale.paper import studies
from adascale.paper.studies.base import Result
from adascale.paper.studies.setting import Setting, Study, Subject
from adascale.paper.studies.write import remarks, remove, save_result, write_page
from adascale.report.terminal import by_group


@app.command()
def study(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Studies, all, or list to see what there is.")],
    suite: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(SUITES)}, or a TOML file [default: digits, without --model and --id]."),
    ] = None,
    model: Models = None,
    weights: ManyWeights = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(help="What the paper calls the network, e.g. imagenet/resnet-50; one, or one for each network."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("adascale-study"),
    setting: Settings = None,
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
    """Run the paper's tables and figures, the paper's figures beside the measured; NAME is one of `study list`."""
    if names == ["list"]:
        _list(as_json)
        return
    named = [studies.get(name) for name in dict.fromkeys(names) if name != "all"]  # refuses what there is not
    chosen = list(studies.ALL) if "all" in names else named
    if report:
        optional("matplotlib", "report")  # better now than after the work
    check_places(out, cache)
    if suite is None and id_images is None:
        if model:
            raise InputError("--model without images; give --suite, or --id with --near or --far.")
        suite = "digits"
    places: list[paper.Place | None] = [paper.place(text) for text in preset or []] or [None]
    given = options.settings(["adascale_a"], setting or [], None)["adascale_a"]
    for one in places:
        options.configured("adascale_a", {**({} if one is None else detectors.preset("adascale_a", *one)), **given})
    suited, images = opened(suite, (id_images, val, train, near, far, shifted), data, available, limit, seed)
    found = networks(model, weights, head, device, suite, (size, crop, mean, std))
    passes = {"batch_size": batch_size, "workers": workers}
    subjects = _subjects(found, places)
    command = shlex.join(["adascale", *sys.argv[1:]])
    place = Setting(suited, images, subjects, cache or cache_folder(), seed, passes, given, command)
    _say_uncompared(place)
    with resumable():
        results = [result for one in chosen if (result := _run(one, place, out, as_json, "all" in names))]
    if as_json:
        print(json.dumps([result.document() for result in results]))
    if report:
        say(f"wrote {write_page(out, [one.name for one in studies.ALL])}")
    say(f"activations are kept in {place.cache}")
    unreadable = max((block.unreadable for result in results for block in result.blocks), default=0)
    end(unreadable, sum(len(found) for _, found in tested(images).values()))


def _list(as_json: bool) -> None:
    if as_json:
        fields = ("name", "title", "source", "question", "passes")
        print(json.dumps([{field: getattr(one, field) for field in fields} for one in studies.ALL]))
        return
    table = plain_table("study", "what it answers", "the paper's table or figure", "passes")
    for one in studies.ALL:
        table.add_row(one.name, one.question, one.source, one.passes)
    Console().print(table)


def _subjects(found: list[Network], places: list[paper.Place | None]) -> list[Subject]:
    if len(places) == 1:
        places *= len(found)
    if len(places) != len(found):
        raise InputError(f"{len(found)} networks and {len(places)} --preset; give one for all, or one for each.")
    return [Subject(network, place) for network, place in zip(found, places, strict=True)]


def _say_uncompared(setting: Setting) -> None:
    others = [one.place for one in setting.subjects if one.place is not None and setting.compared(one) is None]
    if others:
        names = ", ".join(dict.fromkeys(map(str, others)))
        say(
            f"note: {setting.suite.name} has other images than the paper for {names}: its setting, but not its figures."
        )


def _run(one: Study, setting: Setting, out: Path, quiet: bool, among_all: bool) -> Result | None:
    """The result; of all studies one that these images are not fit for is left out, an older result removed."""
    began = time.monotonic()
    try:
        result = one.run(setting)
    except InputError as error:
        if not among_all:
            raise
        removed = remove(one.name, out)
        say(f"left out {one.name}: {error}" + (f" (removed its older {', '.join(removed)})" if removed else ""))
        return None
    files = save_result(result, out)
    if not quiet:
        _print(result)
    say(f"{one.name}: {time.monotonic() - began:.1f} s, wrote {', '.join(map(str, files))}")
    return result


def _print(result: Result) -> None:
    console = Console(highlight=False)
    console.print(f"{result.title}. {result.question} (Paper: {result.source})", soft_wrap=True)
    for block in result.blocks:
        for title, table in by_group(block):
            console.print(f"\n{title}", soft_wrap=True)
            console.print(table)
        if block.note:
            console.print(block.note, soft_wrap=True)
    for note in remarks(result):
        console.print(note, soft_wrap=True)
    console.print()
