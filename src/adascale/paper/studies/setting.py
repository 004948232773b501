"""What every study is given, and what every study is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from adascale import detectors
from adascale.bench.figures import reproduce
from adascale.bench.run import Entry, Job, Network
from adascale.bench.suites import Suite, SuiteImages, load_suite
from adascale.core.errors import InputError
from adascale.detectors.adaptive import Adaptive
from adascale.extraction.batches import Passes
from adascale.extraction.sets import Extractor
from adascale.images.corruptions import STRENGTHS, Corruption
from adascale.paper import figures as paper
from adascale.paper.studies.base import Block, Result, has_paper

Name = Literal["adascale_a", "adascale_l"]
METHODS: Mapping[Name, type[Adaptive]] = {"adascale_a": detectors.AdaSCALE_A, "adascale_l": detectors.AdaSCALE_L}
TEXT_K2 = 5  # percent; the paper's text says that one k2 serves all networks
_MADE_SEVERITY = 3
# Whose sensitivity tables have that k2 in their reference row, though the headline row of the network has another.
_TEXT_K2_TABLES = (paper.Place("imagenet", "vit-b-16"),)
_TEXT_K2_NOTE = (
    f" The paper's text has k2={TEXT_K2} % everywhere, and so does the reference row of this network's table of "
    "sensitivity; the preset, of its headline row, has k2=100 %."
)


@dataclass(frozen=True, eq=False)
class Subject:
    """A network, and what the paper calls it and its data (None: the paper does not have it, or nobody said)."""

    network: Network
    place: paper.Place | None = None

    @property
    def name(self) -> str:
        return self.network.name if self.place is None else f"{self.network.name} ({self.place})"


@dataclass(frozen=True, eq=False)
class Setting:
    """What every study is given.

    given: parameters of AdaSCALE in the place of defaults and presets. command: how to do it again.
    """

    suite: Suite
    images: SuiteImages
    subjects: Sequence[Subject]
    cache: Path
    seed: int = 0
    passes: Passes = Passes()
    given: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    _extractors: dict[Network, Extractor] = field(default_factory=dict, init=False, repr=False)

    def job(self, subject: Subject, entries: Sequence[Entry] = (), images: SuiteImages | None = None) -> Job:
        shared = self._extractors.get(subject.network)  # one hash of each network for all studies
        job = Job(subject.network, images or self.images, entries, self.cache, self.seed, self.passes, shared)
        self._extractors[subject.network] = job.extractor
        return job

    def base(self, subject: Subject, name: Name = "adascale_a", sensitivity: bool = False) -> Adaptive:
        """AdaSCALE with the paper's setting for this network where there is one, else the defaults.

        sensitivity: that of the paper's tables of sensitivity.
        """
        known = {} if subject.place is None else detectors.preset(name, *subject.place)
        if sensitivity and subject.place in _TEXT_K2_TABLES:
            known |= {"k2": TEXT_K2}
        try:
            return METHODS[name](**{**known, **self.given})
        except InputError as error:
            raise InputError(f"{subject.name}, {name}: {error}") from error

    @property
    def as_preset(self) -> Setting:
        """Without the parameters that were given: what the paper's figures are of."""
        return replace(self, given={})

    def changed(self, subject: Subject, name: Name = "adascale_a") -> dict[str, Any]:
        """Those of the given parameters that are not as they would be anyway."""
        known = self.as_preset.base(subject, name).parameters
        return {field: value for field, value in self.given.items() if known.get(field) != value}

    def compared(self, subject: Subject) -> paper.Place | None:
        """Where the paper has figures of this network on these images; a suite of one's own is what its user says."""
        place = subject.place
        if place is None or not self.suite.shipped:
            return place
        data, _ = paper.SUITES.get(self.suite.name, ("", ""))
        return place if place.data == data else None

    def common_place(self) -> paper.Place | None:
        """The same for the mean over networks: seeds of one of the paper's, or all of its own alike often."""
        places = Counter(map(self.compared, self.subjects))
        if len(places) == 1:
            return next(iter(places))
        data = {None if place is None else place.data for place in places}
        name = data.pop()
        if data or name is None or len(set(places.values())) != 1:
            return None
        whole = {place.network for place in places if place is not None} == set(paper.networks(name))
        return paper.Place(name, paper.AVERAGE) if whole else None

    @property
    def changes(self) -> list[str]:
        """Which parameters of the paper are not as the paper has them."""
        found = []
        for subject in filter(self.compared, self.subjects):
            values = {field: value for name in METHODS for field, value in self.changed(subject, name).items()}
            if values:
                texts = ", ".join(f"{field}={value}" for field, value in values.items())
                found.append(
                    f"{subject.name}: {texts} was given; what this changes has no figure of the paper beside it."
                )
        return found

    @property
    def lacking(self) -> list[str]:
        """Which sets of the paper's means are not here, of a suite of the package."""
        if not self.suite.shipped or self.suite.name not in paper.SUITES:
            return []
        whole = load_suite(paper.SUITES[self.suite.name][1])
        near, far = (
            sorted(set(theirs) - set(ours))
            for theirs, ours in ((whole.near, self.images.near), (whole.far, self.images.far))
        )
        names = [*(f"{name} (near)" for name in near), *(f"{name} (far)" for name in far)]
        if not names:
            return []
        return [
            f"The paper's means also have {', '.join(names)}, which are not here: near and far are not comparable one "
            f"to one. The suite {whole.name} has all of them."
        ]

    @cached_property
    def full(self) -> SuiteImages:
        """With covariate-shifted ID images: the suite's, else corruptions of the ID images, a part of them each."""
        if self.images.shifted:
            return self.images
        changes = [Corruption(kind, _MADE_SEVERITY, self.seed) for kind in STRENGTHS]
        known, step = self.images.id, len(changes)
        made = {
            str(change): replace(known.subset(range(i, len(known), step)), change=change)
            for i, change in enumerate(changes[: len(known)])
        }
        return replace(self.images, shifted=made)

    def starts(self, sensitivity: bool = False) -> list[str]:
        """What AdaSCALE-A is like where nothing else is said, for each network."""
        found = []
        for subject in self.subjects:
            found.append(
                f"{subject.name}, AdaSCALE-A: {_in_words(self.base(subject, sensitivity=sensitivity))}."
                + (_TEXT_K2_NOTE if sensitivity and subject.place in _TEXT_K2_TABLES else "")
            )
        return found

    @property
    def full_note(self) -> str:
        """Where the shifted images of `full` come from."""
        names = ", ".join(f"{name} {len(found)}" for name, found in self.full.shifted.items())
        if self.images.shifted:
            return f"Full spectrum: shifted ID images ({names} images) count as ID."
        return (
            f"Full spectrum: the suite has no shifted ID images, so its ID images were corrupted, a fifth of them each "
            f"({names} images), and count as ID. The paper has ImageNet-C, -R, -V2 and -ES."
        )

    @cached_property
    def about(self) -> dict[str, Any]:
        """Versions, data with sizes and fingerprints, networks."""
        return reproduce(self.suite, self.images, [self.job(subject) for subject in self.subjects])


@dataclass(frozen=True)
class Study(ABC):
    """A table or figure of the paper. source: which; passes: what it costs, for people who plan."""

    name: str
    title: str
    source: str
    question: str
    passes: str = "clean and one view"
    uses_given: ClassVar[bool] = True  # whether the setting's parameters of AdaSCALE count
    sensitivity: ClassVar[bool] = False  # whether it starts from the setting of the paper's tables of sensitivity

    def run(self, setting: Setting) -> Result:
        """Measure it."""
        with_settings = {subject.name: self.settings(setting, subject) for subject in setting.subjects}
        blocks = list(self.blocks(setting))
        changes = setting.changes if self.uses_given else []
        notes = [*self.notes(setting), *changes, *(setting.lacking if has_paper(blocks) else [])]
        about = {"command": setting.command, **setting.about, "settings": with_settings}
        return Result(self.name, self.title, self.source, self.question, setting.suite.name, blocks, notes, about)

    @abstractmethod
    def blocks(self, setting: Setting) -> Iterator[Block]:
        """The tables."""

    def notes(self, setting: Setting) -> list[str]:
        """How to read them."""
        return []

    def settings(self, setting: Setting, subject: Subject) -> dict[str, Any]:
        """The parameters that the study starts from."""
        return setting.base(subject, sensitivity=self.sensitivity).parameters


def _in_words(method: Adaptive) -> str:
    pixels = "all pixels" if method.pixels == "all" else f"{100 * method.fraction:g} % {method.pixels} pixels"
    return (
        f"p_min={method.p_min:g}, p_max={method.p_max:g}, lambda={method.lam:g}, k1={method.k1:g} %, "
        f"k2={method.k2:g} %, epsilon={method.epsilon:g} on {pixels}, statistic {method.statistic}"
    )
