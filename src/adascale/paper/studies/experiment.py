"""What every study runs on: a suite and its images, networks, and the parameters of AdaSCALE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from adascale import detectors
from adascale.bench.columns import Spectrum
from adascale.bench.figures import reproduce
from adascale.bench.run import Entry, Job, Network
from adascale.bench.suites import Suite, SuiteImages, load_suite
from adascale.core.errors import InputError
from adascale.detectors.adaptive import Adaptive
from adascale.extraction.batches import Passes
from adascale.extraction.cache import Extractor
from adascale.images.corruptions import STRENGTHS, Corruption
from adascale.paper import published
from adascale.storage.remote import Place

ADASCALE: Mapping[str, type[Adaptive]] = {"adascale_a": detectors.AdaSCALE_A, "adascale_l": detectors.AdaSCALE_L}
TEXT_K2 = 5  # percent; the paper's text says that one k2 serves all networks
_MADE_SEVERITY = 3
# Networks whose sensitivity tables have that k2 in their reference row, unlike their headline row
_TEXT_K2_TABLES = (published.Place("imagenet", "vit-b-16"),)
_TEXT_K2_NOTE = (
    f" The paper's text has k2={TEXT_K2} % everywhere, and so does the reference row of this network's table of "
    "sensitivity; the preset, of its headline row, has k2=100 %."
)


@dataclass(frozen=True, eq=False)
class Subject:
    """A network, and its place in the paper (None: the paper does not have it, or the user did not say)."""

    network: Network
    place: published.Place | None = None

    @property
    def name(self) -> str:
        """The network's name, and what the paper calls it."""
        return self.network.name if self.place is None else f"{self.network.name} ({self.place})"


@dataclass(frozen=True, eq=False)
class Experiment:
    """A suite, its images and the networks to study.

    given: parameters of AdaSCALE that replace defaults and presets. command: the command line that repeats the study.
    """

    suite: Suite
    images: SuiteImages
    subjects: Sequence[Subject]
    cache: Place
    seed: int = 0
    passes: Passes = Passes()
    given: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    _extractors: dict[Network, Extractor] = field(default_factory=dict, init=False, repr=False)

    def job(self, subject: Subject, entries: Sequence[Entry] = (), images: SuiteImages | None = None) -> Job:
        """A benchmark of these lines on the network of ``subject``."""
        shared = self._extractors.get(subject.network)  # each network is hashed once for all studies
        job = Job(subject.network, images or self.images, entries, self.cache, self.seed, self.passes, shared)
        self._extractors[subject.network] = job.extractor
        return job

    def adascale(
        self, subject: Subject, name: str = "adascale_a", sensitivity: bool = False, plain: bool = False
    ) -> Adaptive:
        """AdaSCALE with the paper's parameters for this network where there are any, else with the defaults.

        sensitivity: take the parameters of the paper's sensitivity tables. plain: ignore ``given``.
        """
        known = {} if subject.place is None else detectors.preset(name, *subject.place)
        if sensitivity and subject.place in _TEXT_K2_TABLES:
            known |= {"k2": TEXT_K2}
        try:
            return ADASCALE[name](**{**known, **({} if plain else self.given)})
        except InputError as error:
            raise InputError(f"{subject.name}, {name}: {error}") from error

    def changed(self, subject: Subject, name: str = "adascale_a") -> dict[str, Any]:
        """The given parameters that differ from what the network would have without them."""
        known = self.adascale(subject, name, plain=True).parameters
        return {field: value for field, value in self.given.items() if known.get(field) != value}

    def compared(self, subject: Subject) -> published.Place | None:
        """The place of this network in the paper, if the images are the paper's too.

        A suite of the package says which data it has; for a suite of one's own the user's word counts.
        """
        if subject.place is None or not self.suite.shipped:
            return subject.place
        data, _ = published.SUITES.get(self.suite.name, ("", ""))
        return subject.place if subject.place.data == data else None

    def compared_mean(self) -> published.Place | None:
        """The place of the mean over all networks: they are seeds of one network, or the paper's, each as often."""
        counts = Counter(map(self.compared, self.subjects))
        first = next(iter(counts))
        if first is None or len(counts) == 1:
            return first
        papers = {published.Place(first.data, network) for network in published.paper_networks(first.data)}
        complete = set(counts) == papers and len(set(counts.values())) == 1
        return published.Place(first.data, published.AVERAGE) if complete else None

    def images_for(self, spectra: Sequence[Spectrum]) -> SuiteImages:
        """The images that these spectra need."""
        return self.full_spectrum if "full" in spectra else self.images

    @cached_property
    def full_spectrum(self) -> SuiteImages:
        """The images with covariate-shifted ID sets: the suite's own, else corruptions of parts of the ID images."""
        if self.images.shifted:
            return self.images
        changes = [Corruption(kind, _MADE_SEVERITY, self.seed) for kind in STRENGTHS]
        known, step = self.images.id, len(changes)
        made = {
            str(change): replace(known.subset(range(i, len(known), step)), change=change)
            for i, change in enumerate(changes[: len(known)])
        }
        return replace(self.images, shifted=made)

    def spectra_notes(self, spectra: Sequence[Spectrum]) -> list[str]:
        """Where the shifted ID images of the full spectrum come from."""
        if "full" not in spectra:
            return []
        names = ", ".join(f"{name} {len(found)}" for name, found in self.full_spectrum.shifted.items())
        if self.images.shifted:
            return [f"Full spectrum: shifted ID images ({names} images) count as ID."]
        return [
            f"Full spectrum: the suite has no shifted ID images, so its ID images were corrupted, a fifth of them each "
            f"({names} images), and count as ID. The paper has ImageNet-C, -R, -V2 and -ES."
        ]

    def start_notes(self, sensitivity: bool = False) -> list[str]:
        """The parameters of AdaSCALE-A on each network where a study says nothing else."""
        return [
            f"{subject.name}, AdaSCALE-A: {_in_words(self.adascale(subject, sensitivity=sensitivity))}."
            + (_TEXT_K2_NOTE if sensitivity and subject.place in _TEXT_K2_TABLES else "")
            for subject in self.subjects
        ]

    def changed_notes(self) -> list[str]:
        """Which parameters differ from those of the paper."""
        found = {}
        for subject in filter(self.compared, self.subjects):
            values = {field: value for name in ADASCALE for field, value in self.changed(subject, name).items()}
            found[subject.name] = ", ".join(f"{field}={value}" for field, value in values.items())
        words = "was given; what this changes has no figure of the paper beside it."
        return [f"{name}: {texts} {words}" for name, texts in found.items() if texts]

    def missing_sets_notes(self) -> list[str]:
        """Which sets of the paper's means a suite of the package lacks."""
        if not self.suite.shipped or self.suite.name not in published.SUITES:
            return []
        whole = load_suite(published.SUITES[self.suite.name][1])
        pairs = (("near", whole.near, self.images.near), ("far", whole.far, self.images.far))
        names = [f"{name} ({kind})" for kind, theirs, ours in pairs for name in sorted(set(theirs) - set(ours))]
        if not names:
            return []
        return [
            f"The paper's means also have {', '.join(names)}, which are not here: near and far are not comparable one "
            f"to one. The suite {whole.name} has all of them."
        ]

    @cached_property
    def about(self) -> dict[str, Any]:
        """Versions, data with sizes and fingerprints, and networks."""
        return reproduce(self.suite, self.images, [self.job(subject) for subject in self.subjects])


def _in_words(method: Adaptive) -> str:
    pixels = "all pixels" if method.pixels == "all" else f"{100 * method.fraction:g} % {method.pixels} pixels"
    return (
        f"p_min={method.p_min:g}, p_max={method.p_max:g}, lambda={method.lam:g}, k1={method.k1:g} %, "
        f"k2={method.k2:g} %, epsilon={method.epsilon:g} on {pixels}, statistic {method.statistic}"
    )
