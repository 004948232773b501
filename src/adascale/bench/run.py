"""Every method on every set of a suite: each image goes through the network once, plus once for each distinct view."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any

from adascale.bench import diagnostics
from adascale.bench.columns import Kind
from adascale.bench.results import ModelRun, SetInfo
from adascale.bench.scoring import Scored, examples, infinite
from adascale.bench.suites import SuiteImages
from adascale.core.errors import InputError
from adascale.core.progress import progress
from adascale.core.shards import Shards
from adascale.core.types import Need, Outputs, Tap
from adascale.decision.fitting import Fitted, Outliers, Plan
from adascale.decision.ood_detector import OODDetector
from adascale.decision.tuning import Judge, Point, Tuning, grid
from adascale.detectors import Detector
from adascale.extraction.batches import Passes
from adascale.extraction.cache import Extracted, Extractor, Spread, UnreadableError
from adascale.images.outliers import OUTLIERS, Tamper
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.network.classifier import Classifier
from adascale.storage.remote import Place

# What `OODDetector` and ``adascale fit`` take where no method is named.
DEFAULT: str = inspect.signature(OODDetector).parameters["method"].default
_TUNED = " (tuned)"


@dataclass(frozen=True)
class Entry:
    """One line of the table: a method, and by what its parameters are chosen (None: they are not).

    given: parameters that are kept when the others are chosen. deployed: the line is the detector that ``fit`` makes
    of the validation images: tuned if ``fit`` would tune it, on the same images, and fitted on as many; where it is not
    tuned, its label is the name of the method. twin: the label of another line of the method; this one is left out if
    both have the same parameters.
    """

    label: str
    method: Detector
    tune: Judge | None = None
    given: frozenset[str] = frozenset()
    deployed: bool = False
    twin: str = ""

    @classmethod
    def as_deployed(cls, method: Detector, given: frozenset[str] = frozenset()) -> Entry | None:
        """The line of a method that ``fit`` tunes by default; None for others, and where ``given`` prevents it."""
        wanted = Plan(method, given).wanted
        return cls(f"{method.name}{_TUNED}", method, given=given, deployed=True) if wanted else None

    def space(self) -> dict[str, tuple[Any, ...]]:
        """The parameters that are left to choose, with their values."""
        return {name: values for name, values in self.method.search_space.items() if name not in self.given}


@dataclass(frozen=True, eq=False)
class Network:
    """A network under its name in the tables. trained: the settings of ``adascale train`` that made it. spread: others
    that make its passes.
    """

    name: str
    classifier: Classifier
    preprocess: Preprocess
    trained: Mapping[str, Any] = field(default_factory=dict)
    spread: Spread | None = None


@dataclass(eq=False)
class Job:
    """One network on one suite. After `run` it holds the methods as they were used, and how they were tuned.

    shared: the extractor of another job of the same run, so that the network is hashed once.
    """

    network: Network
    images: SuiteImages
    entries: Sequence[Entry]
    cache: Place
    seed: int = 0
    passes: Passes = Passes()
    shared: InitVar[Extractor | None] = None

    def __post_init__(self, shared: Extractor | None) -> None:
        known, network = self.network.preprocess, self.network.classifier
        self.extractor = shared or Extractor(network, known, self.cache, self.passes, self.network.spread)
        self.entries = [replace(entry, method=replace(entry.method).for_input(known.std)) for entry in self.entries]
        self.methods: dict[str, Detector] = {}
        self.fitted: dict[str, Fitted] = {}
        self.left_out: dict[str, str] = {}
        self.twins: dict[str, str] = {}
        self.unreadable: dict[str, Mapping[str, str]] = {}
        self._parts: dict[tuple[int, ...], ImageSet] = {}

    @property
    def tunings(self) -> dict[str, Tuning]:
        """How the parameters of each line were chosen, where they were."""
        return {label: fitted.tuning for label, fitted in self.fitted.items() if fitted.tuning is not None}

    def run(self) -> ModelRun:
        """Extract what is missing, fit every method, score every set."""
        self._leave_out_impossible()
        needs = list(dict.fromkeys(need for entry in self.entries for need in self._needs(entry)))
        val = self.extracted("val", self.images.val, needs)
        learning = [entry for entry in self.entries if entry.method.learns_from_train]
        taps = [need for entry in learning for need in self._needs(entry) if isinstance(need, Tap)]
        train = self.extracted("train", self.images.train, taps) if learning and self.images.train is not None else None
        kinds = {name: kind for name, (kind, _) in tested(self.images).items()}
        self._fit(val, train)
        # After the fit, because some views depend on what a method has learned: so they share the one clean pass.
        late = [need for method in self.methods.values() for need in method.wants if method.learns_view]
        extracted = self._tested([*needs, *late])
        deployed = next((label for label in (f"{DEFAULT}{_TUNED}", DEFAULT) if label in self.methods), "")
        profiled, seen = self._profiled(deployed)
        with progress("Scoring", sum(map(len, extracted.values()))) as advance:
            scored = {name: Scored(self.methods, seen, found, advance) for name, found in extracted.items()}
        scores = {label: {name: part.scores[label] for name, part in scored.items()} for label in self.methods}
        self.left_out |= {label: reason for label, found in scores.items() if (reason := infinite(found))}
        self.methods = {label: method for label, method in self.methods.items() if label not in self.left_out}
        if not self.methods:
            raise InputError(f"No method gave finite scores: {next(iter(self.left_out.values()))}")
        deployed, profiled = (label if label in self.methods else "" for label in (deployed, profiled))
        shown = deployed or profiled or next(iter(self.methods))
        unknown = {name: found for name, found in {**self.images.near, **self.images.far}.items() if name in scored}
        return ModelRun(
            model=self.network.name,
            sets={name: SetInfo(kinds[name], len(found), found.failures) for name, found in extracted.items()},
            accuracy=scored["id"].accuracy,
            scores={label: scores[label] for label in self.methods},
            left_out=self.left_out,
            shown=shown,
            profiles={name: found.profile for name, found in scored.items() if profiled and found.profile is not None},
            examples={
                "id": examples({"id": self.images.id}, scored, shown, self.network.classifier.class_names, most=True),
                "ood": examples(unknown, scored, shown, self.network.classifier.class_names, most=False),
            },
            deployed=deployed,
            profiled=diagnostics.title(profiled, seen, self.methods[profiled]) if profiled and seen else "",
            profiled_with=diagnostics.setting(seen) if profiled and seen else "",
            twins=self.twins,
            unreadable=self.unreadable,
            evidence={name: part.evidence for name, part in scored.items() if part.evidence},
            as_fit=next(filter(self.methods.__contains__, self._labels_as_fit()), ""),
            calibration=self.fitted[deployed].calibration if deployed else None,
        )

    def _profiled(self, deployed: str) -> tuple[str, Detector | None]:
        """The line whose profiles are shown, and its part that has them: the deployed line if it can, else another."""
        labels = sorted(self.methods, key=lambda label: label != deployed)
        parts = ((label, diagnostics.profiled_part(self.methods[label])) for label in labels)
        return next(((label, part) for label, part in parts if part is not None), ("", None))

    def _labels_as_fit(self) -> Iterator[str]:
        """The labels that the lines of methods that ``fit`` tunes by default can have."""
        for entry in (entry for entry in self.entries if entry.deployed):
            yield from (entry.label, entry.method.name)

    def _tested(self, needs: Sequence[Need]) -> dict[str, Extracted]:
        """The outputs of every tested set. A set without a readable image is left out, unless it is the ID set."""
        found = {}
        for name, (kind, images) in tested(self.images).items():
            try:
                found[name] = self.extracted(name, images, needs)
            except UnreadableError as error:
                if kind == "id":
                    raise
                self.unreadable[name] = error.failures
        if not {*self.images.near, *self.images.far} & set(found):
            reasons = ", ".join(f"{name} ({next(iter(each.values()))})" for name, each in self.unreadable.items())
            raise InputError(f"{self.network.name}: no OOD set has an image that can be read: {reasons}.")
        return found

    def _leave_out_impossible(self) -> None:
        """Lines that need what the network cannot give are left out before any long work."""
        needed = {entry.label: self._needs(entry) for entry in self.entries}
        lacking = self.extractor.cannot(self.images.val, [need for needs in needed.values() for need in needs])
        for label, needs in needed.items():
            if reason := next((lacking[need] for need in needs if need in lacking), ""):
                self.left_out[label] = reason
        self.entries = [entry for entry in self.entries if entry.label not in self.left_out]
        if not self.entries:
            raise InputError(f"{self.network.name}: no method can be used: {next(iter(self.left_out.values()))}")

    def _needs(self, entry: Entry) -> Sequence[Need]:
        """What a line needs: what its grid does if it is deployed, else what the method does as it is."""
        return self._as_fit(entry).needs if entry.deployed else entry.method.wants

    def _as_fit(self, entry: Entry) -> Plan:
        """The plan of `OODDetector.fit` with nothing but these parameters given."""
        plan = OODDetector(self.network.classifier, entry.method, split_seed=self.seed).plan()
        return replace(plan, given=entry.given)

    def extracted(self, name: str, images: ImageSet, needs: Sequence[Need], tamper: Tamper | None = None) -> Extracted:
        """The outputs of an image set, from the cache as far as they are there."""
        title = f"{self.network.name}: {name} ({len(images)} images)"
        try:
            about = {"suite": self.images.name, "network": self.network.name, "set": name}
            return self.extractor.extract(images, needs, title, tamper, about)
        except UnreadableError as error:
            raise UnreadableError(error.failures, f"{self.network.name}, set {name}: ") from error
        except InputError as error:
            raise InputError(f"{self.network.name}, set {name}: {error}") from error

    def _fit(self, val: Extracted, train: Extracted | None) -> None:
        """Fit every method, tuned where asked; those that cannot be fitted are left out with the reason."""
        outputs, learned = val.load(), None if train is None else train.learnable()
        for entry in self.entries:
            try:
                plan = self._as_fit(entry) if entry.deployed else self._plan_of(entry)
                fitted = plan.fit(outputs, self.network.classifier.head, learned, self._outliers(plan, val))
                label = entry.method.name if entry.deployed and fitted.tuning is None else entry.label
                self.methods[label], self.fitted[label] = fitted.method, fitted
            except InputError as error:
                self.left_out[entry.label] = str(error)
        for entry in self.entries:
            if entry.twin in self.methods and self._alike(entry.label, entry.twin):
                self.twins[entry.label] = entry.twin
                del self.methods[entry.label], self.fitted[entry.label]
        if not self.methods:
            raise InputError(f"{self.network.name}: no method can be fitted: {next(iter(self.left_out.values()))}")

    def _alike(self, label: str, other: str) -> bool:
        one = self.methods.get(label)
        return one is not None and label != other and one.parameters == self.methods[other].parameters

    def _plan_of(self, entry: Entry) -> Plan:
        """The plan of a line that is not deployed. What the other lines have no use for is not extracted."""
        method, points = entry.method, None
        if entry.tune is not None:
            points = [p for p in grid(method, entry.space()) if replace(method, **p).wants == method.wants]
        return self._plan(method, points, entry.tune)

    def tune(self, method: Detector, points: Sequence[Point], judge: Judge) -> Tuning:
        """The best point by AUROC; what the method is fitted on and the ID images that judge it are kept apart.

        ``self``: against outliers made from these ID images; ``ood``: against the suite's OOD validation images.
        """
        learned: Outputs | Shards | None = None
        plan, train = self._plan(method, points, judge), self.images.train
        val = self.extracted("val", self.images.val, plan.needs)
        if train is not None and plan.takes_train and not plan.train_overlaps:
            learned = self.extracted("train", train, plan.taps).learnable()
        _, tuning = plan.choose(val.load(), self.network.classifier.head, learned, self._outliers(plan, val))
        assert tuning is not None  # the plan wants it, and there are outliers
        return tuning

    def _plan(self, method: Detector, points: Sequence[Point] | None, judge: Judge | None) -> Plan:
        if judge == "ood" and not self.images.ood_val:
            raise InputError("There are no OOD validation images to tune on; tune on outliers made from ID images.")
        plan = Plan(method, tune=judge is not None, seed=self.seed, judge=judge or "self", points=points)
        return replace(plan, train_overlaps=plan.wanted and plan.takes_train and self._train_overlaps)

    def _outliers(self, plan: Plan, val: Extracted) -> Outliers:
        def outliers(chosen: Sequence[int], needs: Sequence[Need]) -> dict[str, Outputs]:
            if plan.judge == "ood":
                return {name: self.extracted(name, found, needs).load() for name, found in self.images.ood_val.items()}
            usable = tuple(val.usable[i] for i in chosen)
            ones = self._parts.setdefault(usable, self.images.val.subset(usable))  # so that it is hashed once
            return {name: self.extracted(name, ones, needs, make).load() for name, make in OUTLIERS.items()}

        return outliers

    @cached_property
    def _train_overlaps(self) -> bool:
        """Whether training and validation images have an image in common: a file, or the whole array."""
        train, val = self.images.train, self.images.val
        if train is None or train.array is None:
            return train is not None and bool(set(train.files()) & set(val.files()))
        return train.fingerprint() == val.fingerprint()


def tested(images: SuiteImages) -> dict[str, tuple[Kind, ImageSet]]:
    """The sets that are scored, ID first."""
    groups: dict[Kind, Mapping[str, ImageSet]] = {"id": {"id": images.id}, "shifted": images.shifted}
    groups |= {"near": images.near, "far": images.far}
    return {name: (kind, found) for kind, group in groups.items() for name, found in group.items()}
