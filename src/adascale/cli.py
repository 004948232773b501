"""The command line. Data on stdout, talk and progress on stderr.

Exit codes: 0 done; 2 a mistake in the call, told in one line; 3 done, but some images could not be read (each has its
row and reason); 130 interrupted, the same command goes on where it stopped; 1 an error of ours.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from adascale import detectors, jobs, store
from adascale.cache import cache_key
from adascale.data import Preprocess, find_images
from adascale.detector import OODDetector
from adascale.detectors import Detector
from adascale.errors import AdascaleError, DetectorFileError, InputError
from adascale.rows import Journal, Row, write_csv, write_jsonl
from adascale.specs import FORMS, load_network
from adascale.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tells when an image classifier is looking at something it was never trained on.",
)
SOME_UNREADABLE, INTERRUPTED = 3, 130

Images = Annotated[str, typer.Argument(help="Folder (recursive), image, image list (.txt), .npz, or - for a list.")]
Model = Annotated[str, typer.Option("--model", help=f"The network: {FORMS}.")]
Weights = Annotated[Path | None, typer.Option(help="Weights file: .safetensors, or a .pth state dict.")]
Root = Annotated[Path | None, typer.Option(help="Where the paths of an image list start [default: its folder].")]
BatchSize = Annotated[int, typer.Option(min=1, help="Images per pass.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps ...; auto takes a GPU where there is one.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Decoding threads [default: one a core, at most 8].")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


@app.command()
def fit(
    images: Images,
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="The detector file to write (.safetensors).")],
    weights: Weights = None,
    method: Annotated[str, typer.Option(help="See adascale methods.")] = "adascale_a",
    setting: Annotated[list[str] | None, typer.Option("--set", help="A parameter, e.g. p_max=90.")] = None,
    preset: Annotated[str | None, typer.Option(help="The paper's setting, e.g. imagenet/resnet-50.")] = None,
    alpha: Annotated[float, typer.Option(help="Share of in-distribution images that may be flagged.")] = 0.05,
    head: Annotated[str | None, typer.Option(help="Name of the last linear layer, if it is not found.")] = None,
    size: Annotated[str | None, typer.Option(help="Resize: shorter side, or HEIGHT,WIDTH.")] = None,
    crop: Annotated[str | None, typer.Option(help="Centre crop: side, or HEIGHT,WIDTH.")] = None,
    mean: Annotated[str | None, typer.Option(help="Channel means, e.g. 0.485,0.456,0.406.")] = None,
    std: Annotated[str | None, typer.Option(help="Channel deviations, e.g. 0.229,0.224,0.225.")] = None,
    split_seed: Annotated[int, typer.Option(help="Of the split between fitting and calibration.")] = 0,
    root: Root = None,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn from in-distribution images and write a detector file."""
    parameters = _parameters(method, setting or [], preset)
    found = find_images(images, root)
    network, preprocess = load_network(model, weights)
    detector = OODDetector(
        network.to(_device(device)),
        method,
        head=head,
        alpha=alpha,
        split_seed=split_seed,
        batch_size=batch_size,
        preprocess=_preprocess(preprocess, size, crop, mean, std),
        **parameters,
    )
    with _resumable():
        failures = jobs.fit_images(detector, found, output.with_name(output.name + ".parts"), workers)
    detector.save(output, model=_absolute(model), weights=None if weights is None else str(weights.resolve()))
    for name, reason in failures.items():
        _say(f"skipped {name}: {reason}")
    if as_json:
        print(json.dumps({**store.read(output)[1], "file": str(output), "skipped": failures}))
    else:
        print(f"{output}: {detector.method}\n{detector.guarantee}")
    _end(len(failures), len(found))


@app.command()
def score(
    images: Images,
    detector: Annotated[Path, typer.Option("--detector", "-d", help="A file written by adascale fit.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="scores.csv, .jsonl or .parquet [default: CSV on stdout].")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The network, if it moved since fit.")] = None,
    weights: Weights = None,
    root: Root = None,
    batch_size: BatchSize = 32,
    workers: Workers = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score, p-value and decision for each image."""
    found = find_images(images, root)
    content = hashlib.sha256(detector.read_bytes()).hexdigest() if detector.is_file() else ""
    journal = Journal(output, cache_key(content, found.fingerprint())) if output else None
    loaded = _load(detector, model, weights, device)
    loaded.batch_size = batch_size
    start = journal.done() if journal else 0
    tally: Counter[str] = Counter()
    if journal and start:
        _say(f"resuming after {start} of {len(found)} images")
        tally.update(map(_outcome, journal.rows()))
    with _resumable():
        for batch in jobs.score_images(loaded, found, start, workers):
            if journal:
                journal.append(batch)
            else:
                (write_jsonl if as_json else write_csv)(sys.stdout, batch, jobs.COLUMNS, header=not tally)
            tally.update(map(_outcome, batch))
    if journal:
        journal.finish(jobs.COLUMNS)
        _report(output, tally, as_json)
    _end(tally["failed"], len(found))


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="One method, in full.")] = None, as_json: AsJson = False
) -> None:
    """List the methods; with a NAME, its definition, parameters and search space."""
    chosen = detectors.ALL if name is None else (detectors.get(name),)
    if as_json:
        print(json.dumps([_described(cls) for cls in chosen]))
    elif name is not None:
        print(_in_full(chosen[0]))
    else:
        table = _plain_table("method", "what it is", "fitted on", "passes")
        for row in map(_described, chosen):
            table.add_row(row["name"], row["summary"], row["fitted_on"], row["passes"])
        Console().print(table)


@app.command()
def inspect(file: Annotated[Path, typer.Argument(help="A detector file.")], as_json: AsJson = False) -> None:
    """Show what a detector file holds."""
    record = store.read(file)[1]
    if as_json:
        print(json.dumps(record))
        return
    table = _plain_table()
    for section, value in record.items():
        for name, entry in value.items() if isinstance(value, dict) else [("", value)]:
            table.add_row(f"{section}.{name}".rstrip("."), "-" if entry is None else str(entry))
    Console().print(table)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the detector, the network and example images.")] = Path(
        "adascale-demo"
    ),
    as_json: AsJson = False,
) -> None:
    """The main job, offline, in under a minute: train a small network, fit every method, compare, decide."""
    from adascale.demo import run  # needs scikit-learn

    run(out, as_json)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def _load(file: Path, model: str | None, weights: Path | None, device: str) -> OODDetector:
    about = store.read(file)[1]["about"]
    spec, saved_weights = model or about.get("model"), about.get("weights")
    if spec is None:
        raise DetectorFileError(f"{file} does not say which network it belongs to; pass --model.")
    if model is None:
        _say(f"network {spec} (named in {file.name})")
    network, _ = load_network(spec, weights or (None if model else saved_weights))
    return OODDetector.load(file, network.to(_device(device)))


def _parameters(method: str, settings: list[str], preset: str | None) -> dict[str, Any]:
    cls = detectors.get(method)
    parameters: dict[str, Any] = {}
    if preset is not None:
        data, _, network = preset.partition("/")
        parameters |= detectors.preset(method, data, network)
    for setting in settings:
        name, _, text = setting.partition("=")
        parameters[name] = _value(cls, name, text)
    return parameters


def _value(cls: type[Detector], name: str, text: str) -> Any:
    """The text in the type of the parameter's default; an unknown name is refused by the detector itself."""
    default = next((field.default for field in fields(cls) if field.name == name), text)
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, int | float):
            number = float(text)
            return int(number) if number.is_integer() else number
    except (KeyError, ValueError) as error:
        raise InputError(f"--set {name}={text}: {name} is a {type(default).__name__} such as {default}.") from error
    return text


def _preprocess(
    known: Preprocess | None, size: str | None, crop: str | None, mean: str | None, std: str | None
) -> Preprocess | None:
    """The network's own preprocessing with what was given on the command line in its place."""
    given: dict[str, Any] = {
        "size": _numbers("size", size, int, scalar=True),
        "crop": _numbers("crop", crop, int, scalar=True),
        "mean": _numbers("mean", mean, float),
        "std": _numbers("std", std, float),
    }
    given = {name: value for name, value in given.items() if value is not None}
    if known is not None:
        return replace(known, **given)
    if not given:
        return None
    if missing := {"size", "mean", "std"} - set(given):
        raise InputError(f"The network's own preprocessing is not known; also pass --{', --'.join(sorted(missing))}.")
    return Preprocess(**{"crop": given["size"], **given})


def _numbers(option: str, text: str | None, kind: type, scalar: bool = False) -> Any:
    if text is None:
        return None
    try:
        values = tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--{option} {text}: give numbers separated by commas, such as 0.485,0.456,0.406.") from error
    return values[0] if scalar and len(values) == 1 else values


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"--device {name} cannot be used here: {str(error).splitlines()[0]}") from error


def _absolute(spec: str) -> str:
    file, _, factory = spec.rpartition(":")
    return f"{Path(file).resolve()}:{factory}" if file.endswith(".py") else spec


def _described(cls: type[Detector]) -> dict[str, Any]:
    detector = cls()
    passes = 1 + len(detector.views)
    gradients = sum(view.needs_gradient for view in detector.views)
    return {
        "name": cls.name,
        "summary": cls.summary,
        "fitted_on": {"val": "a few ID images", "nothing": "nothing"}.get(cls.fits_on, f"ID {cls.fits_on}"),
        "passes": f"{passes} forward" + (f", {gradients} backward" if gradients else ""),
        "signed_features": cls.signed_features,
        "parameters": detector.parameters,
        "search_space": cls.search_space,
    }


def _in_full(cls: type[Detector]) -> str:
    texts = [doc for part in (cls, *cls.__bases__) if part is not Detector and (doc := getdoc(part))]
    lines = [f"{name} = {value}{_grid(cls, name)}" for name, value in cls().parameters.items()]
    return "\n\n".join([cls.name, *texts, "Parameters: " + ("; ".join(lines) or "none")])


def _grid(cls: type[Detector], name: str) -> str:
    return f" (searched: {', '.join(map(str, cls.search_space[name]))})" if name in cls.search_space else ""


def _plain_table(*columns: str) -> Table:
    table = Table(box=None, show_header=bool(columns), pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0)
    return table


def _outcome(row: Row) -> str:
    return "failed" if row["is_ood"] is None else "ood" if row["is_ood"] else "id"


def _report(output: Path | None, tally: Counter[str], as_json: bool) -> None:
    scored = tally["id"] + tally["ood"]
    if as_json:
        print(json.dumps({"file": str(output), "images": scored + tally["failed"], "scored": scored, **tally}))
    else:
        _say(f"{output}: {scored} images scored, {tally['ood']} out-of-distribution")


def _end(failed: int, total: int) -> None:
    if failed:
        _say(f"{failed} of {total} images could not be read")
        raise typer.Exit(SOME_UNREADABLE)


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _say("adascale: interrupted; the same command goes on where it stopped.")
        raise typer.Exit(INTERRUPTED) from None


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> None:
    warnings.showwarning = lambda message, *_, **__: _say(f"note: {message}")
    try:
        app()
    except AdascaleError as error:
        _say(f"adascale: {error}")
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
