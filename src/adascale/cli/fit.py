"""``adascale fit`` and ``adascale score``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from adascale import detectors
from adascale.cli import networks, options
from adascale.cli.checks import method_names
from adascale.cli.commands import FitCommand, ScoreCommand
from adascale.cli.console import end, resumable, say
from adascale.cli.printed import Printed, note_limits, tell_scored
from adascale.cli.shards import score_shards
from adascale.cli.workers import executor_of, spread_over
from adascale.core.errors import InputError
from adascale.decision import folders
from adascale.decision.detector_file import DetectorFile, read_detectors
from adascale.decision.discovered import Discoveries, discovered, find_discoveries, with_discovery
from adascale.decision.ood_detector import OODDetector
from adascale.detectors.configure import configured
from adascale.extraction.shard_cache import cache_key
from adascale.images.sources import ImageSet, find_images
from adascale.network.class_names import class_names
from adascale.network.ready import usable_device
from adascale.network.specs import absolute
from adascale.showing.score_page import Scored, write_page
from adascale.storage.atomic import remove_folder
from adascale.storage.locks import claimed
from adascale.storage.remote import Place, Url, unfinished
from adascale.storage.rows import Journal


def fit(given: FitCommand) -> None:
    """Fit every method from one extraction, and save those that could be fitted."""
    methods = {
        detectors.get(text).name: text
        for text in method_names(given.method or ["combined" if given.preset is None else "adascale_a"])
    }
    settings = options.settings(methods, given.setting or [], given.preset)
    for name, text in methods.items():
        configured(text, settings[name])  # refuses a wrong value before anything is loaded
    output = given.output.resolve()
    networks.check_output(output, set(methods))
    usable_device(given.device)
    if given.preset is not None:
        say(f"preset {given.preset}: {detectors.PROVENANCE}")
    found = find_images(given.images, given.root, given.max_pixels)
    training = find_images(given.train, given.root, given.max_pixels) if given.train else None
    running = {"precision": given.precision, "compiled": given.compiled}
    classifier, preprocess = networks.network(
        given.model, given.weights, given, draft=given.draft, classes=given.classes, **running
    )
    common: dict[str, Any] = {"alpha": given.alpha, "confidence": given.confidence, "split_seed": given.split_seed}
    common["preprocess"] = preprocess
    made = [OODDetector(classifier, text, **common, **settings[name]) for name, text in methods.items()]
    several, parts = len(made) > 1, _parts(output, given)
    with claimed(output, folder=several):
        with resumable(), executor_of(given) as executor:
            spread = spread_over(executor, given, given.model, given.weights, **running)
            about: dict[str, Any] = {"source": source_of(given.images), "spread": spread}
            failures, refused = folders.fit_images(
                made, found, training, parts, tune=given.tune, passes=given.passes(), **about
            )
        if refused and "all" not in (given.method or ()):
            raise next(iter(refused.values()))
        records = [{**record, "skipped": failures} for record in _saved(made, refused, output, given)]
        remove_folder(parts)
    for image, reason in failures.items():
        say(f"skipped {image}: {reason}")
    if given.as_json:
        print(json.dumps(records if several else records[0]))
    end(len(failures), len(found) + len(training or ()))


def _parts(output: Place, given: FitCommand) -> Place:
    """Where activations are kept until the end: on this machine, or at the URL if workers elsewhere make them."""
    if given.on == "ray" and isinstance(output, Url):
        return output.with_name(f"{output.name}.parts")
    return unfinished(output, ".parts")


def _saved(
    made: list[OODDetector], refused: Mapping[str, InputError], output: Place, given: FitCommand
) -> Iterator[dict[str, Any]]:
    """Save the detectors that could be fitted and say so; yields their records."""
    weights = None if given.weights is None else str(given.weights.resolve())
    for detector in made:
        name = detector.method.name
        file = output if len(made) == 1 else output / f"{name}.safetensors"
        if name in refused:
            say(f"left out {name}: {refused[name]}")
            file.unlink(missing_ok=True)  # of an earlier run
            continue
        record = detector.save(file, model=absolute(given.model), weights=weights)
        if not given.as_json:
            print(f"{file}: {detector.method}\nparameters: {detector.setting}\n{detector.guarantee}")
        yield {**record, "file": str(file)}


def score(given: ScoreCommand) -> None:
    """Write a row for each image. With an output file, finished rows are stored and an interrupted run resumes."""
    if given.on is not None:
        return score_shards(given)
    found, output = find_images(given.images, given.root, given.max_pixels), given.output
    usable_device(given.device)
    files = read_detectors(given.detector)
    networks.check_asked(given, files)
    contents = [file.sha256 for file in files]
    names = class_names(given.classes) if given.classes else ()
    asked = (given.decide, given.evidence, *given.promise)
    key = cache_key(*contents, found.fingerprint(), *asked, *found.names, *names)
    with claimed(output) if output else nullcontext():
        _score(given, found, files, Journal(output, key) if output else None)


def _score(given: ScoreCommand, found: ImageSet, files: list[DetectorFile], journal: Journal | None) -> None:
    """The rows of the images that the journal does not have yet, then the output."""
    loaded = networks.detectors(files, given)
    if any(given.promise):
        for name, detector in loaded.items():
            say(f"{name}: threshold {detector.threshold:.6g}. {detector.guarantee}")
    columns = folders.columns(loaded, given.decide, given.evidence)
    start = journal.done(given.batch_size, len(found)) if journal else 0
    tally, marked = folders.Tally(columns), dict[str, Discoveries]()
    seen = None if given.report is None else Scored()
    printed = Printed(columns, given.form, waits=given.fdr is not None)
    if journal and start:
        say(f"resuming after {start} of {len(found)} images")
        tally.add(journal.rows())
        if seen is not None:
            seen.add(journal.rows())
    with resumable(journal is not None):
        if given.decide:
            made = folders.decide_images(next(iter(loaded.values())), found, start, given.passes())
        else:
            made = folders.score_images(loaded, found, start, given.passes(), given.evidence)
        with printed:
            for batch in made:
                (journal.append if journal else printed.append)(batch)
                tally.add(batch)
                if seen is not None:
                    seen.add(batch)
    rows = journal.rows if journal else printed.rows
    if given.fdr is not None:
        marked = find_discoveries(rows(), columns, given.fdr)
    if journal:
        late = with_discovery(columns, marked), len(found), discovered(rows(), marked)
        journal.finish(*late)
        tell_scored(journal.output, vars(tally), given.as_json, marked)
    else:
        printed.finish(marked)
    note_limits(marked, [len(file.calibration.scores) for file in files], given.fdr)
    if seen is not None and given.report is not None:
        write_page(seen, found, next(iter(loaded.values())), given.report, source_of(given.images))
        say(f"wrote {given.report}")
    end(tally.failed, len(found))


def source_of(images: list[str]) -> str:
    """What a record says about where images come from."""
    return " ".join("standard input" if path == "-" else path for path in images)
