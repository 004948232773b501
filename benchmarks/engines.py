"""(m) engines: score and decisions by torch, onnxruntime, OpenVINO and torch.compile against a plain eager forward."""

from __future__ import annotations

import importlib.util
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from adascale import Classifier, OODDetector
from adascale.core.engines import ENGINES
from adascale.core.timing import interleaved
from adascale.core.types import Outputs
from adascale.extraction.extract import extract
from benchmarks.measured import Ratio, ratio
from benchmarks.passes import plain
from benchmarks.subjects import Subject

BATCHES = {16: 32, 1: 8}  # images of a batch, and how many are decided
METHODS = ("adascale_l", "combined")
_MOST = {
    ("score", "openvino", "imagenet_resnet50"): 1.20,
    ("score", "openvino", "cifar10_densenet101"): 1.25,
    ("score", "onnxruntime", "imagenet_resnet50"): 1.40,
    ("score", "onnxruntime", "cifar10_densenet101"): 1.75,
    ("is_ood", "openvino", "imagenet_resnet50"): 0.70,
    ("is_ood", "openvino", "cifar10_densenet101"): 0.70,
}  # of AdaSCALE-L in batches of 16
_COMPILED, _SECONDS = "torch.compile", 120


def engines(subject: Subject, repeats: int, compiled: bool) -> Iterator[Ratio]:
    """Every engine with one thread, as torch has then. The calls of one batch size take turns."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        detectors = _detectors(subject, compiled)
        for batch in BATCHES:
            yield from _ratios(subject, detectors, batch, repeats)
    finally:
        torch.set_num_threads(before)


Detectors = dict[str, dict[str, OODDetector]]


def _detectors(subject: Subject, compiled: bool) -> Detectors:
    """Fitted detectors by engine and method. An engine that is not installed is left out, with a line on stderr."""
    found: Detectors = {}
    for name, (extra, packages) in ENGINES.items():
        if any(importlib.util.find_spec(package) is None for package in packages):
            print(f"{name} is left out: pip install 'adascale[{extra}]'", file=sys.stderr)
            continue
        found[name] = _fitted(subject, {"engine": name})
    if compiled:
        try:
            with _at_most(_SECONDS):
                found[_COMPILED] = _fitted(subject, {"compiled": True})
        except TimeoutError:
            print(f"{_COMPILED} is left out: not ready after {_SECONDS} seconds", file=sys.stderr)
    return found


def _fitted(subject: Subject, option: dict[str, Any]) -> dict[str, OODDetector]:
    """Random pixels and p 80/85, from one extraction. The options' preparation is over afterwards."""
    began, classifier = time.perf_counter(), Classifier(subject.model, **option).locate(subject.known)
    classifier.forward(subject.known[:2])
    print(f"{subject.name}, {option}: ready after {time.perf_counter() - began:.0f} s", file=sys.stderr)
    made = {name: OODDetector(classifier, name, pixels="random", p_min=80, p_max=85) for name in METHODS}
    views = [view for detector in made.values() for view in detector.method.views]
    outputs = Outputs.cat(list(extract(classifier, subject.val[:100], views, max(BATCHES))))
    for detector in made.values():
        detector.fit_outputs(outputs, tune=False)
    return made


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Interrupt what takes longer, where the system can."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _ratios(subject: Subject, detectors: Detectors, batch: int, repeats: int) -> Iterator[Ratio]:
    """The score of one batch, and the decisions on ID images in such batches."""
    one, some = subject.known[:batch], subject.known[: BATCHES[batch]]
    calls: dict[str, Callable[[], object]] = {"plain": plain(subject, one, batch)}
    calls["plain, all"] = plain(subject, some, batch)
    cases = [(engine, name, detector) for engine, made in detectors.items() for name, detector in made.items()]
    for engine, name, detector in cases:
        detector.batch_size = batch
        calls[f"score {engine} {name}"] = partial(detector.score, one)
        calls[f"is_ood {engine} {name}"] = partial(detector.is_ood, some)
    times = interleaved(calls, repeats, clock=time.process_time)  # other processes do not count
    for engine, name, detector in cases:
        note = _agreement(subject, detector, detectors["torch"][name])
        for what, base in (("score", "plain"), ("is_ood", "plain, all")):
            most = _MOST.get((what, engine, subject.name)) if (batch, name) == (16, METHODS[0]) else None
            words = "full score" if what == "score" else f"is_ood, {len(some)} ID images"
            words += f", {name}, {engine}, batch {batch} / plain forward"
            timing = times[f"{what} {engine} {name}"].over(times[base])
            yield ratio("m", words, subject.name, timing, most, note)


def _agreement(subject: Subject, detector: OODDetector, usual: OODDetector) -> str:
    """How the answers differ from those of torch; each detector was fitted with its own engine."""
    if detector is usual:
        return ""
    images = torch.cat([subject.known[:16], subject.unknown[:16]])
    found, expected = detector(images), usual(images)
    worst = float(((found.score - expected.score).abs() / expected.score.abs().clamp_min(1e-12)).max())
    flips = int((found.is_ood != expected.is_ood).sum())
    return f"scores differ by {worst:.0e} at most, {flips} of {len(images)} decisions flip"
