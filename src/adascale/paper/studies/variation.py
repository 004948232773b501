"""The mechanism of all studies that vary a parameter: labelled variants of AdaSCALE, scored on every set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from adascale.bench.figures import figures
from adascale.bench.results import Row, Spectrum
from adascale.detectors.adaptive import Adaptive
from adascale.paper.studies.base import Block
from adascale.paper.studies.build import block, missing
from adascale.paper.studies.measure import Variant, measure, rows_of
from adascale.paper.studies.setting import Name, Setting, Study

Bases = Callable[[Name], Adaptive]  # AdaSCALE-A and -L as they are for a network
Variants = Callable[[Bases], Sequence[Variant]]


@dataclass(frozen=True)
class Variation(Study):
    """Variants of the methods of `Setting.base`: a block for each network, and their mean where there are several."""

    variants: Variants = lambda bases: ()
    spectra: tuple[Spectrum, ...] = ("ood",)

    def blocks(self, setting: Setting) -> Iterator[Block]:
        images = setting.full if "full" in self.spectra else setting.images
        names: dict[str, str] = {}
        rows: list[Row] = []
        for subject in setting.subjects:
            variants, papers = (
                self.variants(partial(one.base, subject, sensitivity=self.sensitivity))
                for one in (setting, setting.as_preset)
            )
            run = measure(setting.job(subject, images=images), variants)
            known = rows_of(variants, papers)
            names |= {label: row if names.get(label, row) == row else "" for label, row in known.items()}
            rows += (own := figures(run, intervals=False))
            made = block(subject.name, own, self.name, setting.compared(subject), known, spectra=self.spectra)
            yield missing(made, run)
        if len(setting.subjects) > 1:
            title = f"mean over {len(setting.subjects)} networks"
            yield block(title, rows, self.name, setting.common_place(), names, spectra=self.spectra)

    def notes(self, setting: Setting) -> list[str]:
        return [*setting.starts(self.sensitivity), *([setting.full_note] if "full" in self.spectra else [])]


@dataclass(frozen=True)
class Sensitivity(Variation):
    """A variation of the paper's tables of sensitivity."""

    sensitivity: ClassVar[bool] = True


def changed(changes: Mapping[str, Mapping[str, Any]]) -> Variants:
    """Variants of AdaSCALE-A by what they change."""

    def variants(bases: Bases) -> list[Variant]:
        return [Variant(label, replace(bases("adascale_a"), **change)) for label, change in changes.items()]

    return variants


def one(field: str, name: str, values: Sequence[float]) -> Variants:
    """One field at several values; the label says the paper's symbol."""
    return changed({f"{name}={value:g}": {field: value} for value in values})
