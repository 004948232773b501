"""The networks and detectors that the options of a command name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from adascale.bench.run import Network
from adascale.cli import options
from adascale.cli.commands import FitCommand, ScoreCommand
from adascale.cli.console import say
from adascale.cli.groups import NetworksOptions, TrustOptions
from adascale.cli.workers import spread_over
from adascale.cluster.executor import Executor
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.decision.detector_file import DetectorFile
from adascale.decision.ood_detector import OODDetector
from adascale.decision.saved import trusted_spec
from adascale.decision.several import load_columns
from adascale.images.preprocess import Preprocess
from adascale.network import FORMS
from adascale.network.class_names import check_count, class_names
from adascale.network.classifier import Classifier
from adascale.network.ready import ready_network
from adascale.network.trained import NAME, is_network_list, registered
from adascale.storage.remote import Place
from adascale.training.checkpoint import settings_of


def network(
    spec: str,
    weights: Path | None,
    given: FitCommand | NetworksOptions,
    draft: bool | None = None,
    classes: Path | None = None,
    **running: Any,
) -> tuple[Classifier, Preprocess]:
    """One network on its device, and its preprocessing with what was given in its place. classes: names of classes."""
    classifier, known = ready_network(spec, weights, given.device, given.head, engine=given.engine, **running)
    preprocess = options.preprocess(known, given)
    if draft is not None:
        preprocess = replace(preprocess, draft=draft)
    return _with_names(classifier, classes, preprocess), preprocess


def _with_names(classifier: Classifier, file: Path | None, preprocess: Preprocess) -> Classifier:
    """The network with the class names of the file, if one is given. Their number is checked by a small pass."""
    if file is not None:
        images = torch.randn(2, len(preprocess.mean), *preprocess.side, generator=torch.Generator().manual_seed(0))
        classes = len(classifier.locate(images).head.weight)
        classifier.class_names = check_count(class_names(file), classes)
    return classifier


def networks(
    given: NetworksOptions, suite: str | None, classes: Path | None = None, executor: Executor | None = None
) -> list[Network]:
    """The networks of `listed`, loaded. classes: a file with the names of their classes. executor: for the passes."""
    return [
        Network(
            name,
            *network(spec, file, given, classes=classes),
            settings_of(file),
            spread_over(executor, given, spec, file),
        )
        for name, spec, file in listed(given, suite)
    ]


def listed(given: NetworksOptions, suite: str | None) -> list[tuple[str, str, Path | None]]:
    """Name, text and weights of every network that was asked for; none is loaded.

    The names are distinct: the factory's, or the weights' where one factory comes several times.
    """
    if not given.model and suite != "digits":
        raise InputError(f"Which network? Give --model: {FORMS}.")
    return list(zip(*_listed(given.model or ["digits"], given.weights or []), strict=True))


def _listed(specs: list[str], weights: list[Path]) -> tuple[list[str], list[str], list[Path | None]]:
    """Name, text and weights of every network; a ``networks.json`` lists networks with their weights."""
    known = [entry for spec in specs if is_network_list(spec) for entry in registered(spec)]
    others = [spec for spec in specs if not is_network_list(spec)]
    if len(others) < len(specs) and weights:
        raise InputError(f"--weights beside {NAME}, which names its own; leave one of them out.")
    if len(others) == 1 and len(weights) > 1:
        others *= len(weights)
    if weights and len(weights) != len(others):
        raise InputError(f"{len(others)} --model and {len(weights)} --weights; give one weights file for each network.")
    names = _distinct([*(entry.name for entry in known), *_names(others, weights)])
    files: list[Path | None] = [entry.weights for entry in known]
    files += [*weights] or [None] * len(others)
    return names, [*(entry.model for entry in known), *others], files


def _names(specs: list[str], files: list[Path]) -> list[str]:
    names = [spec.rpartition(":")[2] for spec in specs]
    if len(set(names)) < len(names) and files:
        names = [f"{name} {file.stem}" for name, file in zip(names, files, strict=True)]
    return _distinct(names)


def _distinct(names: list[str]) -> list[str]:
    return names if len(set(names)) == len(names) else [f"{name} {i + 1}" for i, name in enumerate(names)]


def check_output(output: Place, names: set[str]) -> None:
    """One method writes a file; several write a folder that must hold no other detectors."""
    if len(names) == 1:
        if output.is_dir():
            raise InputError(f"The output {output} is a folder; name a file.")
    elif output.is_file():
        raise InputError(f"The output {output} is a file; several methods need a folder.")
    elif others := {file.stem for file in output.glob("*.safetensors")} - names:
        raise InputError(
            f"The folder {output} holds other files ({', '.join(sorted(others)[:3])}); choose an empty one."
        )


def check_asked(given: ScoreCommand, files: list[DetectorFile]) -> None:
    """Refuse --decide and --report for several detectors, and --evidence where no method combines others."""
    if given.decide and len(files) > 1:
        raise InputError(f"--decide takes one detector; {len(files)} were given.")
    if given.report is not None:
        optional("matplotlib", "report")  # before the work, not after it
        if len(files) > 1 or given.on is not None:
            what = f"{len(files)} were given" if len(files) > 1 else f"--on {given.on} writes shards"
            raise InputError(f"--report shows one detector's rows in one file; {what}.")
    methods = [file.method() for file in files] if given.evidence else []
    if methods and not any(method.speakers for method in methods):
        names = ", ".join(method.name for method in methods)
        raise InputError(f"--evidence is for methods that combine others, such as combined; {names} do not.")


def named(file: DetectorFile, given: TrustOptions) -> tuple[str, Path | str | None]:
    """The text and the weights of a detector's network: as given, or as its file says."""
    spec = given.model or trusted_spec(file, given.trust)
    if given.model is None:
        say(f"network {spec} (named in {file.path.name})")
    return spec, given.weights or file.record["about"].get("weights")


def detectors(files: list[DetectorFile], given: ScoreCommand) -> dict[str, OODDetector]:
    """The detectors by the names of their columns: the method's, or the file's where a method comes twice."""
    spec, weights = named(files[0], given)
    classifier, _ = ready_network(spec, weights, given.device, compiled=given.compiled, engine=given.engine)
    promise = given.alpha, given.confidence, given.no_confidence
    return load_columns(files, classifier, *promise, given.classes)
