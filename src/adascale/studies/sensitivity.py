"""One parameter of AdaSCALE-A at a time, all others as they are: data for one mechanism."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adascale.detectors.adaptive import Adaptive
from adascale.results import Spectrum
from adascale.studies.base import Block
from adascale.studies.build import block
from adascale.studies.measure import Variant, measure
from adascale.studies.setting import Setting, Study, Subject
from adascale.table import figures

Variants = Callable[[Adaptive], Sequence[Variant]]


@dataclass(frozen=True)
class Variation(Study):
    """The method of `Setting.base` in variants, for each network: a block with a line for each."""

    variants: Variants = lambda base: ()
    spectra: tuple[Spectrum, ...] = ("ood",)

    def blocks(self, setting: Setting) -> Iterator[Block]:
        images = setting.full if "full" in self.spectra else setting.images
        for subject in setting.subjects:
            variants = self.made(setting, subject)
            run = measure(setting.job(subject, images=images), variants)
            names = {variant.label: variant.row for variant in variants if variant.row}
            rows = figures(run, intervals=False)
            yield block(subject.name, rows, self.name, subject.place, names, spectra=self.spectra)

    def made(self, setting: Setting, subject: Subject) -> Sequence[Variant]:
        base = setting.base(subject)
        assert isinstance(base, Adaptive)
        return self.variants(base)

    def notes(self, setting: Setting) -> list[str]:
        return [setting.full_note] if "full" in self.spectra else []


def changed(changes: Mapping[str, Mapping[str, Any]]) -> Variants:
    """Variants by what they change."""
    return lambda base: [Variant(label, replace(base, **change)) for label, change in changes.items()]


def one(field: str, name: str, values: Sequence[float], scale: float = 1) -> Variants:
    """One field at several values; the label says the paper's symbol."""
    return changed({f"{name}={value:g}": {field: value * scale} for value in values})


_ONE_VIEW, _SOURCES = "no pass of its own", "sensitivity_resnet50 and sensitivity_single"

STUDIES: tuple[Study, ...] = (
    Variation(
        "epsilon",
        "The size of the step, epsilon",
        f"sentivity_epsilon, {_SOURCES}",
        "How far does the perturbation have to go?",
        "one view for each of 3 values",
        one("epsilon", "epsilon", (0.1, 0.5, 1)),
    ),
    Variation(
        "lambda",
        "The weight of Q, lambda",
        f"sentivity_lambda, {_SOURCES}",
        "How much should the shift Q weigh against C_o? 0 is C_o alone.",
        _ONE_VIEW,
        one("lam", "lambda", (0, 0.1, 1, 10, 20, 30, 100)),
    ),
    Variation(
        "k1",
        "How many activations Q looks at, k1",
        f"sentivity_k_1, {_SOURCES}",
        "Is the shift of the few strongest activations the telling one?",
        _ONE_VIEW,
        one("k1", "k1", (1, 2, 3, 5, 10, 50, 100)),
    ),
    Variation(
        "k2",
        "How many activations C_o looks at, k2",
        f"sentivity_k_2, {_SOURCES}",
        "Does one k2 fit every network, as the paper's text says?",
        _ONE_VIEW,
        one("k2", "k2", (1, 5, 10, 20, 50, 80, 100)),
    ),
)
