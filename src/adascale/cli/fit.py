"""``adascale fit`` and ``adascale score``."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from adascale import detectors
from adascale.cli import options
from adascale.cli.console import (
    AsJson,
    BatchSize,
    Compile,
    Crop,
    Device,
    Draft,
    Images,
    Mean,
    Model,
    PrecisionOption,
    Root,
    Size,
    Std,
    Weights,
    Workers,
    app,
    end,
    resumable,
    say,
)
from adascale.core.errors import DetectorFileError
from adascale.decision import folders as jobs
from adascale.decision.detector_file import DetectorFile, read_detectors
from adascale.decision.ood_detector import OODDetector
from adascale.extraction.batches import Passes
from adascale.extraction.cache import cache_key
from adascale.images.sources import find_images
from adascale.network.classifier import Classifier
from adascale.network.loading import load_network
from adascale.storage.journal import Journal
from adascale.storage.rows import Row, write_csv, write_jsonl


@app.command()
def fit(
    images: Images,
    model: Model,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The detector file to write; a folder of them for several methods.")
    ],
    weights: Weights = None,
    method: Annotated[list[str] | None, typer.Option(help="See adascale methods; repeatable, or all.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter: p_max=90; of one of several: scale.percentile=80.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="The paper's setting, e.g. imagenet/resnet-50.")] = None,
    train: Annotated[
        str | None,
        typer.Option(help="Training images (labels: list or .npz) for methods that learn from them."),
    ] = None,
    tune: Annotated[
        bool | None,
        typer.Option(
            "--tune/--no-tune",
            help="Choose parameters on outliers made from the images [default: AdaSCALE, from 64 images on].",
        ),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Share of in-distribution images that may be flagged.")] = 0.05,
    head: Annotated[str | None, typer.Option(help="Name of the last linear layer, if it is not found.")] = None,
    size: Size = None,
    crop: Crop = None,
    mean: Mean = None,
    std: Std = None,
    split_seed: Annotated[int, typer.Option(help="Of the split between fitting and calibration.")] = 0,
    root: Root = None,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = "auto",
    precision: PrecisionOption = None,
    compiled: Compile = False,
    draft: Draft = False,
    as_json: AsJson = False,
) -> None:
    """Learn from in-distribution images and write a detector file."""
    names = method or ["adascale_a"]
    everything = "all" in names
    names = [cls.name for cls in detectors.ALL] if everything else list(dict.fromkeys(names))
    settings = options.settings(names, setting or [], preset)
    if preset is not None:
        say(f"preset {preset}: {detectors.PROVENANCE}")
    found, training = find_images(images, root), find_images(train, root) if train else None
    network, known = load_network(model, weights)
    preprocess = replace(options.preprocess(known, size, crop, mean, std), draft=draft)
    classifier = Classifier(network.to(options.device(device)), head, precision=precision, compiled=compiled)
    made = [
        OODDetector(
            classifier,
            name,
            alpha=alpha,
            split_seed=split_seed,
            preprocess=preprocess,
            **settings[name],
        )
        for name in names
    ]
    output = output.resolve()
    options.check_output(output, names)
    parts = output.with_name(output.name + ".parts")
    with resumable():
        failures, refused = jobs.fit_images(made, found, training, parts, tune=tune, passes=Passes(batch_size, workers))
    if refused and not everything:
        raise next(iter(refused.values()))
    about = {"model": options.absolute(model), "weights": None if weights is None else str(weights.resolve())}
    records = []
    for detector in made:
        name = detector.method.name
        if name in refused:
            say(f"left out {name}: {refused[name]}")
            (output / f"{name}.safetensors").unlink(missing_ok=True)  # of an earlier run
            continue
        file = output if len(names) == 1 else output / f"{name}.safetensors"
        records.append({**detector.save(file, **about), "file": str(file), "skipped": failures})
        if not as_json:
            print(f"{file}: {detector.method}\nparameters: {detector.setting}\n{detector.guarantee}")
    shutil.rmtree(parts, ignore_errors=True)
    for image, reason in failures.items():
        say(f"skipped {image}: {reason}")
    if as_json:
        print(json.dumps(records[0] if len(names) == 1 else records))
    end(len(failures), len(found) + (len(training) if training else 0))


@app.command()
def score(
    images: Images,
    detector: Annotated[
        list[Path], typer.Option("--detector", "-d", help="A file written by adascale fit, or a folder of them.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="scores.csv, .jsonl or .parquet [default: CSV on stdout].")
    ] = None,
    decide: Annotated[
        bool, typer.Option("--decide", help="Decisions alone, the same ones, at about the price of a forward pass.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="The network, if it moved since fit.")] = None,
    weights: Weights = None,
    root: Root = None,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = "auto",
    compiled: Compile = False,
    as_json: AsJson = False,
) -> None:
    """Score, p-value and decision for each image."""
    found = find_images(images, root)
    files = read_detectors(detector)
    contents = [file.sha256 for file in files]
    journal = Journal(output, cache_key(*contents, found.fingerprint(), decide)) if output else None
    loaded = _load(files, model, weights, device, compiled)
    if decide and len(loaded) > 1:
        raise DetectorFileError(f"--decide takes one detector; {len(loaded)} were given.")
    columns = list(jobs.DECISION_COLUMNS) if decide else jobs.columns(loaded)
    start = journal.done() if journal else 0
    tally = _Tally(columns)
    if journal and start:
        say(f"resuming after {start} of {len(found)} images")
        tally.add(journal.rows())
    with resumable(journal is not None):
        passes = Passes(batch_size, workers)
        if decide:
            made = jobs.decide_images(next(iter(loaded.values())), found, start, passes)
        else:
            made = jobs.score_images(loaded, found, start, passes)
        for batch in made:
            if journal:
                journal.append(batch)
            else:
                (write_jsonl if as_json else write_csv)(sys.stdout, batch, columns, header=not tally.rows)
            tally.add(batch)
    if journal:
        journal.finish(columns)
        tally.report(output, as_json)
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

    def report(self, output: Path | None, as_json: bool) -> None:
        scored = self.rows - self.failed
        if as_json:
            counts = {"images": self.rows, "scored": scored, "failed": self.failed, "ood": self.ood}
            print(json.dumps({"file": str(output), **counts}))
        else:
            each = ", ".join(f"{column.removesuffix('is_ood')}{n}" for column, n in self.ood.items())
            say(f"{output}: {scored} images scored, out-of-distribution: {each.replace('.', ' ')}")


def _load(
    files: list[DetectorFile], model: str | None, weights: Path | None, device: str, compiled: bool
) -> dict[str, OODDetector]:
    """The detectors by the names of their columns: the method's, or the file's where a method comes twice."""
    about, first = files[0].record["about"], files[0].path
    spec, saved_weights = model or about.get("model"), about.get("weights")
    if spec is None:
        raise DetectorFileError(f"{first} does not say which network it belongs to; pass --model.")
    if model is None:
        say(f"network {spec} (named in {first.name})")
    network, _ = load_network(spec, weights or saved_weights)
    classifier = Classifier(network.to(options.device(device)), compiled=compiled)
    loaded = OODDetector.load_all(files, classifier)
    if len({(detector.preprocess, detector.input_shape) for detector in loaded}) > 1:
        raise DetectorFileError("The detectors were fitted with different preprocessing; score them one by one.")
    names = [detector.method.name for detector in loaded]
    if len(set(names)) < len(names):
        names = [file.path.stem for file in files]
    if len(set(names)) < len(names):
        raise DetectorFileError("Two detectors of one method have the same file name; rename one, for the columns.")
    return dict(zip(names, loaded, strict=True))
