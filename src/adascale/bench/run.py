"""Every method on every set of a suite: each image goes through the network once, plus once for each distinct view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adascale.bench.diagnostics import Profiler, has_profile
from adascale.bench.results import Example, Kind, ModelRun, Profile, SetInfo
from adascale.bench.suites import SuiteImages
from adascale.core.errors import InputError
from adascale.core.progress import Advance, progress
from adascale.core.types import Outputs, View
from adascale.decision.fitting import Outliers, Plan
from adascale.decision.tuning import Judge, Point, Tuning, grid
from adascale.detectors import Detector
from adascale.extraction.batches import Passes
from adascale.extraction.cache import Extracted, Extractor
from adascale.images.outliers import OUTLIERS, Tamper
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.network.classifier import Classifier

_GALLERY = 12


@dataclass(frozen=True)
class Entry:
    """One line of the table: a method, and by what its parameters are chosen (None: they are not).

    given: parameters that are kept when the others are chosen.
    """

    label: str
    method: Detector
    tune: Judge | None = None
    given: frozenset[str] = frozenset()

    def space(self) -> dict[str, tuple[Any, ...]]:
        """The parameters that are left to choose, with their values."""
        return {name: values for name, values in self.method.search_space.items() if name not in self.given}


@dataclass(frozen=True, eq=False)
class Network:
    """A network under its name in the tables. trained: the settings of ``adascale train`` that made it."""

    name: str
    classifier: Classifier
    preprocess: Preprocess
    trained: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Job:
    """One network on one suite. After `run` it holds the methods as they were used, and how they were tuned.

    shared: the extractor of another job of the same run, so that the network is hashed once.
    """

    network: Network
    images: SuiteImages
    entries: Sequence[Entry]
    cache: Path
    seed: int = 0
    passes: Passes = Passes()
    shared: InitVar[Extractor | None] = None

    def __post_init__(self, shared: Extractor | None) -> None:
        known, network = self.network.preprocess, self.network.classifier
        self.extractor = shared or Extractor(network, known, self.cache, self.passes)
        self.entries = [replace(entry, method=replace(entry.method).for_input(known.std)) for entry in self.entries]
        self.methods: dict[str, Detector] = {}
        self.tunings: dict[str, Tuning] = {}
        self.left_out: dict[str, str] = {}

    def run(self) -> ModelRun:
        views = list(dict.fromkeys(view for entry in self.entries for view in entry.method.views))
        sets = tested(self.images)
        val = self.extracted("val", self.images.val, views)
        train = None if self.images.train is None else self.extracted("train", self.images.train, ())
        extracted = {name: self.extracted(name, found, views) for name, (_, found) in sets.items()}
        self._fit(val, train)
        shown = next((label for label, method in self.methods.items() if has_profile(method)), "")
        with progress("Scoring", sum(map(len, extracted.values()))) as advance:
            scored = {name: _Scored(self.methods, shown, found, advance) for name, found in extracted.items()}
        scores = {label: {name: part.scores[label] for name, part in scored.items()} for label in self.methods}
        self.left_out |= {label: reason for label, found in scores.items() if (reason := infinite(found))}
        self.methods = {label: method for label, method in self.methods.items() if label not in self.left_out}
        if not self.methods:
            raise InputError(f"No method gave finite scores: {next(iter(self.left_out.values()))}")
        profiles = {name: part.profile for name, part in scored.items() if part.profile is not None}
        if shown not in self.methods:
            shown, profiles = next(iter(self.methods)), {}
        evidence = {name: part.evidence for name, part in scored.items() if part.evidence}
        unknown = {**self.images.near, **self.images.far}
        return ModelRun(
            model=self.network.name,
            sets={name: SetInfo(sets[name][0], len(found), found.failures) for name, found in extracted.items()},
            accuracy=scored["id"].accuracy,
            scores={label: scores[label] for label in self.methods},
            left_out=self.left_out,
            shown=shown,
            profiles=profiles,
            examples={
                "id": _examples({"id": self.images.id}, scored, shown, most=True),
                "ood": _examples(unknown, scored, shown, most=False),
            },
            evidence=evidence,
        )

    def extracted(self, name: str, images: ImageSet, views: Sequence[View], tamper: Tamper | None = None) -> Extracted:
        """The outputs of an image set, from the cache as far as they are there."""
        title = f"{self.network.name}: {name} ({len(images)} images)"
        try:
            return self.extractor.extract(images, views, title, tamper)
        except InputError as error:
            raise InputError(f"{self.network.name}, set {name}: {error}") from error

    def _fit(self, val: Extracted, train: Extracted | None) -> None:
        """Fit every method, tuned where asked; those that cannot be fitted are left out with the reason."""
        outputs, learned = val.load(), None if train is None else train.load()
        for entry in self.entries:
            method, points = entry.method, None
            try:
                if entry.tune is not None:  # views that the other methods have no use for are not extracted
                    points = [p for p in grid(method, entry.space()) if replace(method, **p).views == method.views]
                plan = self._plan(method, points, entry.tune)
                fitted = plan.fit(outputs, self.network.classifier.head, learned, self._outliers(plan, val))
                self.methods[entry.label] = fitted.method
                if fitted.tuning is not None:
                    self.tunings[entry.label] = fitted.tuning
            except InputError as error:
                self.left_out[entry.label] = str(error)
        if not self.methods:
            raise InputError(f"{self.network.name}: no method can be fitted: {next(iter(self.left_out.values()))}")

    def tune(self, method: Detector, points: Sequence[Point], judge: Judge) -> Tuning:
        """The best point by AUROC; what the method is fitted on and the ID images that judge it are kept apart.

        ``self``: against outliers made from these ID images; ``ood``: against the suite's OOD validation images.
        """
        plan, train, learned = self._plan(method, points, judge), self.images.train, None
        val = self.extracted("val", self.images.val, plan.views)
        if train is not None and plan.takes_train and not plan.train_overlaps:
            learned = self.extracted("train", train, ()).load()
        _, tuning = plan.choose(val.load(), self.network.classifier.head, learned, self._outliers(plan, val))
        assert tuning is not None  # the plan wants it, and there are outliers
        return tuning

    def _plan(self, method: Detector, points: Sequence[Point] | None, judge: Judge | None) -> Plan:
        if judge == "ood" and not self.images.ood_val:
            raise InputError("There are no OOD validation images to tune on; tune on outliers made from ID images.")
        plan = Plan(method, tune=judge is not None, seed=self.seed, judge=judge or "self", points=points)
        return replace(plan, train_overlaps=plan.wanted and plan.takes_train and self._train_overlaps)

    def _outliers(self, plan: Plan, val: Extracted) -> Outliers:
        def outliers(chosen: Sequence[int], views: Sequence[View]) -> dict[str, Outputs]:
            if plan.judge == "ood":
                return {name: self.extracted(name, found, views).load() for name, found in self.images.ood_val.items()}
            ones = self.images.val.subset([val.usable[i] for i in chosen])
            return {name: self.extracted(name, ones, views, make).load() for name, make in OUTLIERS.items()}

        return outliers

    @cached_property
    def _train_overlaps(self) -> bool:
        """Whether training and validation images have an image in common: a file, or the whole array."""
        train, val = self.images.train, self.images.val
        if train is None or train.array is None:
            return train is not None and bool(set(train.paths) & set(val.paths))
        return train.fingerprint() == val.fingerprint()


class _Scored:
    """The scores of one set by every method, with one chunk of its shards in memory at a time.

    Results are written into tensors allocated beforehand. Kept in lists, they would fragment the memory that large
    temporaries give back.
    """

    def __init__(self, methods: Mapping[str, Detector], shown: str, extracted: Extracted, advance: Advance) -> None:
        n, self.extracted = len(extracted), extracted
        self.scores = {label: torch.empty(n, dtype=torch.float64) for label in methods}
        self.predictions = torch.empty(n, dtype=torch.int64)
        profiled, correct, labelled, start = methods.get(shown), 0, 0, 0
        profiler = Profiler(profiled, n) if profiled is not None and has_profile(profiled) else None
        spoken = next((label for label, method in methods.items() if method.speakers), None)
        speakers = methods[spoken].speakers if spoken is not None else ()
        self.evidence = {name: torch.empty(n, dtype=torch.float64) for name in speakers}
        for outputs in extracted.chunks():
            rows = slice(start, start + len(outputs))
            for label, method in methods.items():
                self.scores[label][rows], evidence = method.explained(outputs)
                if label == spoken:
                    for name, values in evidence.items():
                        self.evidence[name][rows] = values
            self.predictions[rows] = outputs.logits.argmax(1)
            if outputs.labels is not None:
                correct += int((self.predictions[rows] == outputs.labels).sum())
                labelled += len(outputs)
            if profiler is not None:
                profiler.add(outputs)
            start += len(outputs)
            advance(len(outputs))
        self.accuracy = correct / n if labelled == n else None
        self.profile: Profile | None = profiler.profile() if profiler is not None else None


def infinite(scores: Mapping[str, Tensor]) -> str:
    """Why these scores of sets cannot be ranked; empty if they can."""
    broken = {name: int((~values.isfinite()).sum()) for name, values in scores.items()}
    worst = max(broken, key=broken.__getitem__)
    return f"{broken[worst]} images of {worst} have infinite scores (NaN activations?)" if broken[worst] else ""


def tested(images: SuiteImages) -> dict[str, tuple[Kind, ImageSet]]:
    """The sets that are scored, ID first."""
    groups: dict[Kind, Mapping[str, ImageSet]] = {"id": {"id": images.id}, "shifted": images.shifted}
    groups |= {"near": images.near, "far": images.far}
    return {name: (kind, found) for kind, group in groups.items() for name, found in group.items()}


def _examples(sets: Mapping[str, ImageSet], scored: Mapping[str, _Scored], shown: str, most: bool) -> list[Example]:
    """The images with the highest (``most``) or the lowest scores."""
    found = []
    for name in sets:
        usable = scored[name].extracted.usable
        scores = scored[name].scores[shown]
        places = scores.sort(descending=most, stable=True).indices[:_GALLERY].tolist()
        found += [(float(scores[i]), name, usable[i], int(scored[name].predictions[i])) for i in places]
    found.sort(key=lambda entry: entry[0], reverse=most)
    return [
        Example(name, sets[name].names[i], score, prediction, sets[name].open(i))
        for score, name, i, prediction in found[:_GALLERY]
    ]
