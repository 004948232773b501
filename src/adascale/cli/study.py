"""``adascale study``: the tables and figures of the paper, on any network and suite."""

from __future__ import annotations

import json
import shlex
import sys
import time

from rich.console import Console

from adascale import detectors
from adascale.bench.run import tested
from adascale.cli import options
from adascale.cli.cache import settle
from adascale.cli.commands import StudyCommand
from adascale.cli.console import end, plain_table, resumable, say
from adascale.cli.images import suite_images
from adascale.cli.networks import listed, networks
from adascale.cli.workers import executor_of
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.core.folders import cache_folder
from adascale.detectors.configure import configured
from adascale.network.ready import usable_device
from adascale.paper import published as paper
from adascale.paper import studies
from adascale.paper.studies.base import Result
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.paper.studies.study import Study
from adascale.paper.studies.write import remarks, remove, save_result, write_page
from adascale.report.terminal import by_group
from adascale.storage.locks import claimed


def study(given: StudyCommand) -> None:
    """Run the studies in order; each is printed and saved as soon as it is done."""
    if given.names == ["list"]:
        _list(given.as_json)
        return
    if given.report:
        optional("matplotlib", "report")  # before the work, not after it
    if given.model and given.suite is None and given.id_images is None:
        raise InputError("--model without images; give --suite, or --id with --near or --far.")
    everything, suite = "all" in given.names, given.suite or (None if given.id_images else "digits")
    named = [studies.get(name) for name in dict.fromkeys(given.names) if name != "all"]  # refuses an unknown name
    places: list[paper.Place | None] = [paper.place(text) for text in given.preset or []] or [None]
    fixed = options.settings({"adascale_a": "adascale_a"}, given.setting or [], None)["adascale_a"]
    for one in places:
        configured("adascale_a", {**({} if one is None else detectors.preset("adascale_a", *one)), **fixed})
    usable_device(given.device)
    places = _for_each(places, len(listed(given, suite)))
    suited, images = suite_images(suite, given)
    command, cache = shlex.join(["adascale", *sys.argv[1:]]), given.cache or cache_folder()
    with claimed(given.out, folder=True), resumable(), executor_of(given) as executor:
        found = networks(given, suite, executor=executor)
        subjects = [Subject(network, one) for network, one in zip(found, places, strict=True)]
        experiment = Experiment(suited, images, subjects, cache, given.seed, given.passes(), fixed, command)
        _say_uncompared(experiment)
        chosen = studies.ALL if everything else named
        results = [result for one in chosen if (result := _run(one, experiment, given, everything))]
    if given.as_json:
        print(json.dumps([result.document() for result in results]))
    if given.report:
        say(f"wrote {write_page(given.out, [one.name for one in studies.ALL])}")
    settle(cache, given.cache_limit)
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


def _for_each(places: list[paper.Place | None], networks: int) -> list[paper.Place | None]:
    """The place of every network: one for all of them, or as many as there are."""
    if len(places) == 1:
        return places * networks
    if len(places) != networks:
        raise InputError(f"{networks} networks and {len(places)} --preset; give one for all, or one for each.")
    return places


def _say_uncompared(experiment: Experiment) -> None:
    others = [one.place for one in experiment.subjects if one.place is not None and experiment.compared(one) is None]
    if others:
        names = ", ".join(dict.fromkeys(map(str, others)))
        say(f"note: {experiment.suite.name} has other images than the paper for {names}; its values are not shown.")


def _run(one: Study, experiment: Experiment, given: StudyCommand, among_all: bool) -> Result | None:
    """The result. Among all studies, one that cannot use these images is left out and its older files are removed."""
    began = time.monotonic()
    try:
        result = one.run(experiment)
    except InputError as error:
        if not among_all:
            raise
        removed = remove(one.name, given.out)
        say(f"left out {one.name}: {error}" + (f" (removed its older {', '.join(removed)})" if removed else ""))
        return None
    files = save_result(result, given.out)
    if not given.as_json:
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
