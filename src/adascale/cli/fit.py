"""``adascale fit`` and ``adascale score``."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adascale import detectors
from adascale.cli import networks, options
from adascale.cli.checks import method_names
from adascale.cli.commands import FitCommand, ScoreCommand
from adascale.cli.console import end, resumable, say
from adascale.core.errors import InputError
from adascale.decision import folders
from adascale.decision.detector_file import read_detectors
from adascale.decision.ood_detector import OODDetector
from adascale.extraction.cache import cache_key
from adascale.images.sources import find_images
from adascale.storage.rows import Journal, Row, write_csv, write_jsonl


def fit(given: FitCommand) -> None:
    """Fit every method from one extraction, and save those that could be fitted."""
    methods = {detectors.get(text).name: text for text in method_names(given.method or ["combined"])}
    settings = options.settings(methods, given.setting or [], given.preset)
    if given.preset is not None:
        say(f"preset {given.preset}: {detectors.PROVENANCE}")
    found = find_images(given.images, given.root)
    training = find_images(given.train, given.root) if given.train else None
    running = {"precision": given.precision, "compiled": given.compiled}
    classifier, preprocess = networks.network(given.model, given.weights, given, draft=given.draft, **running)
    common: dict[str, Any] = {"alpha": given.alpha, "split_seed": given.split_seed, "preprocess": preprocess}
    made = [OODDetector(classifier, text, **common, **settings[name]) for name, text in methods.items()]
    output = given.output.resolve()
    networks.check_output(output, set(methods))
    parts = output.with_name(output.name + ".parts")
    with resumable():
        failures, refused = folders.fit_images(made, found, training, parts, tune=given.tune, passes=given.passes())
    if refused and "all" not in (given.method or ()):
        raise next(iter(refused.values()))
    weights = None if given.weights is None else str(given.weights.resolve())
    records = []
    for detector in made:
        name = detector.method.name
        file = output if len(made) == 1 else output / f"{name}.safetensors"
        if name in refused:
            say(f"left out {name}: {refused[name]}")
            file.unlink(missing_ok=True)  # of an earlier run
            continue
        record = detector.save(file, model=networks.absolute(given.model), weights=weights)
        records.append({**record, "file": str(file), "skipped": failures})
        if not given.as_json:
            print(f"{file}: {detector.method}\nparameters: {detector.setting}\n{detector.guarantee}")
    shutil.rmtree(parts, ignore_errors=True)
    for image, reason in failures.items():
        say(f"skipped {image}: {reason}")
    if given.as_json:
        print(json.dumps(records[0] if len(made) == 1 else records))
    end(len(failures), len(found) + len(training or ()))


def score(given: ScoreCommand) -> None:
    """Write a row for each image. With an output file, finished rows are stored and an interrupted run resumes."""
    found, output = find_images(given.images, given.root), given.output
    files = read_detectors(given.detector)
    contents = [file.sha256 for file in files]
    journal = (
        Journal(output, cache_key(*contents, found.fingerprint(), given.decide, given.evidence)) if output else None
    )
    loaded = networks.detectors(files, given)
    if given.decide and len(loaded) > 1:
        raise InputError(f"--decide takes one detector; {len(loaded)} were given.")
    columns = list(folders.DECISION_COLUMNS) if given.decide else folders.columns(loaded, given.evidence)
    if given.evidence and not any(detector.method.speakers for detector in loaded.values()):
        raise InputError(
            f"--evidence is for methods that combine others, such as combined; {', '.join(loaded)} do not."
        )
    start = journal.done() if journal else 0
    tally = _Tally(columns)
    if journal and start:
        say(f"resuming after {start} of {len(found)} images")
        tally.add(journal.rows())
    with resumable(journal is not None):
        if given.decide:
            made = folders.decide_images(next(iter(loaded.values())), found, start, given.passes())
        else:
            made = folders.score_images(loaded, found, start, given.passes(), given.evidence)
        for batch in made:
            if journal:
                journal.append(batch)
            else:
                (write_jsonl if given.as_json else write_csv)(sys.stdout, batch, columns, header=not tally.rows)
            tally.add(batch)
    if journal:
        journal.finish(columns)
        tally.report(journal.output, given.as_json)
    end(tally.failed, len(found))


class _Tally:
    """What the rows add up to."""

    def __init__(self, columns: list[str]) -> None:
        self.rows = self.failed = 0
        self.ood = {column: 0 for column in columns if column.endswith("is_ood")}

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows += 1
            self.failed += row["prediction"] is None
            for column in self.ood:
                self.ood[column] += bool(row[column])

    def report(self, output: Path, as_json: bool) -> None:
        scored = self.rows - self.failed
        if as_json:
            counts = {"images": self.rows, "scored": scored, "failed": self.failed, "ood": self.ood}
            print(json.dumps({"file": str(output), **counts}))
        else:
            each = ", ".join(f"{column.removesuffix('is_ood')}{n}" for column, n in self.ood.items())
            say(f"{output}: {scored} images scored, out-of-distribution: {each.replace('.', ' ')}")
