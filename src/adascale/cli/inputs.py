"""What ``bench``, ``tune`` and ``study`` share: the options that name images and networks, and what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adascale.bench.run import Network
from adascale.bench.suites import SUITES, Suite, SuiteImages, load_suite, open_suite, own_suite
from adascale.cli import options
from adascale.cli.console import say
from adascale.core.errors import InputError
from adascale.network.classifier import Classifier
from adascale.network.loading import FORMS, load_network
from adascale.network.trained import NAME, registered
from adascale.training.checkpoint import settings_of

SuiteName = Annotated[
    str | None, typer.Argument(help=f"{', '.join(SUITES)}, or a TOML file; nothing with --id and --near or --far.")
]
Models = Annotated[
    list[str] | None, typer.Option("--model", help=f"The network: {FORMS}, digits, or a networks.json; repeatable.")
]
ManyWeights = Annotated[
    list[Path] | None, typer.Option("--weights", help="Weights file; one for each --model, or several for one.")
]
IdImages = Annotated[str | None, typer.Option("--id", help="ID test images, as for score; instead of a suite.")]
Val = Annotated[str | None, typer.Option(help="ID images to fit on [default: a fifth of --id].")]
Train = Annotated[str | None, typer.Option(help="Training images for methods that learn from them.")]
Near = Annotated[list[str] | None, typer.Option(help="NAME=PATH of near-OOD images; repeatable.")]
Far = Annotated[list[str] | None, typer.Option(help="NAME=PATH of far-OOD images; repeatable.")]
Shifted = Annotated[
    list[str] | None, typer.Option(help="NAME=PATH of shifted ID images, or noise:3, rotate:90, all; repeatable.")
]
Data = Annotated[Path | None, typer.Option(help="Where a suite's files are [default: OPENOOD_DATA, ./data].")]
Available = Annotated[bool, typer.Option("--available", help="Run what is there; say what is missing.")]
Limit = Annotated[int | None, typer.Option(min=1, help="At most so many images of each set, a seeded draw.")]
Cache = Annotated[Path | None, typer.Option(help="Folder of the activations [default: ADASCALE_CACHE, ~/.cache].")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="A parameter: scale.percentile=80.")]
Preset = Annotated[str | None, typer.Option(help="Lines with the paper's setting too, e.g. imagenet/resnet-50.")]
Seed = Annotated[int, typer.Option(help="Of every draw.")]
Head = Annotated[str | None, typer.Option(help="Name of the last linear layer, if it is not found.")]


def check_places(out: Path | None, cache: Path | None) -> None:
    """Before any work."""
    for option, path in (("--out", out), ("--cache", cache)):
        if path is not None and path.exists() and not path.is_dir():
            raise InputError(f"{option} {path} is a file; give a folder.")


def opened(
    name: str | None,
    own: tuple[str | None, str | None, str | None, list[str] | None, list[str] | None, list[str] | None],
    data: Path | None,
    available: bool,
    limit: int | None,
    seed: int,
) -> tuple[Suite, SuiteImages]:
    id_images, val, train, near, far, shifted = own
    if (name is None) == (id_images is None):
        raise InputError(f"Give either a suite ({', '.join(SUITES)}, a TOML file) or --id with --near or --far.")
    if name is not None:
        if any(own):
            raise InputError(f"--val, --train, --near, --far, --shifted belong to --id; the suite {name} has its own.")
        suite = load_suite(name, data)
    else:
        suite = own_suite(id_images or "", val, train, near or [], far or [], shifted or [])
    images = open_suite(suite, available, seed, limit)
    for label, place in images.missing.items():
        say(f"left out {label}: expected at {place}")
    if suite.note:
        say(f"note: {suite.note}")
    return suite, images


def networks(
    specs: list[str] | None,
    weights: list[Path] | None,
    head: str | None,
    device: str,
    suite: str | None,
    look: tuple[str | None, str | None, str | None, str | None],
) -> list[Network]:
    """The networks under names of their own: the factory's, or the weights' where one factory comes several times."""
    if not specs and suite != "digits":
        raise InputError(f"Which network? Give --model: {FORMS}.")
    names, specs, files = _listed(specs or ["digits"], list(weights or []))
    found = []
    for name, spec, file in zip(names, specs, files, strict=True):
        model, preprocess = load_network(spec, file)
        known = options.preprocess(preprocess, *look)
        classifier = Classifier(model.to(options.device(device)), head)
        found.append(Network(name, classifier, known, settings_of(file)))
    return found


def _listed(specs: list[str], weights: list[Path]) -> tuple[list[str], list[str], list[Path | None]]:
    """Name, text and weights of every network; those of a ``networks.json`` as it has them."""
    if any(map(_is_registry, specs)):
        if weights:
            raise InputError(f"--weights beside {NAME}, which names its own; leave one of them out.")
        known = [entry for spec in specs if _is_registry(spec) for entry in registered(spec)]
        others = [spec for spec in specs if not _is_registry(spec)]
        names = [entry.name for entry in known] + _names(others, [])
        return _own_names(names), [e.model for e in known] + others, [e.weights for e in known] + [None] * len(others)
    if len(specs) == 1 and len(weights) > 1:
        specs = specs * len(weights)
    if weights and len(weights) != len(specs):
        raise InputError(f"{len(specs)} --model and {len(weights)} --weights; give one weights file for each network.")
    return _names(specs, weights), specs, [*weights] or [None] * len(specs)


def _is_registry(spec: str) -> bool:
    return Path(spec).name == NAME or (Path(spec) / NAME).is_file()


def _names(specs: list[str], files: list[Path]) -> list[str]:
    names = [spec.rpartition(":")[2] for spec in specs]
    if len(set(names)) < len(names) and files:
        names = [f"{name} {file.stem}" for name, file in zip(names, files, strict=True)]
    return _own_names(names)


def _own_names(names: list[str]) -> list[str]:
    return names if len(set(names)) == len(names) else [f"{name} {i + 1}" for i, name in enumerate(names)]
