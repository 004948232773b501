"""Variants of a method, measured on stored activations, and the studies that are nothing but a list of variants.

Views are extracted once and cached; after that a variant costs arithmetic alone. Chunks of each set and one group of
variants with the same views are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from adascale.bench.results import ModelRun, SetInfo
from adascale.bench.run import Job, tested
from adascale.bench.scoring import infinite
from adascale.core.errors import InputError
from adascale.core.progress import progress
from adascale.core.types import Outputs
from adascale.detectors import Detector
from adascale.detectors.adaptive import Adaptive
from adascale.extraction.cache import Extracted
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.paper.studies.study import Measured, NetworkTables

_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Variant:
    """A method under a label, which is also the name of the paper's row.

    reference: indices of the validation images that the method is fitted on [default: all].
    """

    label: str
    method: Detector
    reference: tuple[int, ...] | None = None


Bases = Callable[[str], Adaptive]  # AdaSCALE-A and -L as they are for a network
Variants = Callable[[Bases], Sequence[Variant]]


@dataclass(frozen=True)
class Variation(NetworkTables):
    """Variants of AdaSCALE as it is for each network."""

    variants: Variants = lambda bases: ()

    def measured(self, experiment: Experiment, subject: Subject) -> Measured:
        job = experiment.job(subject, images=experiment.images_for(self.spectra))
        variants, rows = compared_variants(experiment, subject, self.variants, self.sensitivity)
        return Measured(measure(job, variants), rows)

    def notes(self, experiment: Experiment) -> list[str]:
        return [*experiment.start_notes(self.sensitivity), *experiment.spectra_notes(self.spectra)]


def changed(changes: Mapping[str, Mapping[str, Any]]) -> Variants:
    """Variants of AdaSCALE-A: the parameters that change, by label."""

    def variants(bases: Bases) -> list[Variant]:
        return [Variant(label, replace(bases("adascale_a"), **change)) for label, change in changes.items()]

    return variants


def one_parameter(field: str, symbol: str, values: Sequence[float]) -> Variants:
    """AdaSCALE-A with one parameter at several values; the label has the paper's symbol."""
    return changed({f"{symbol}={value:g}": {field: value} for value in values})


def compared_variants(
    experiment: Experiment, subject: Subject, make: Variants, sensitivity: bool = False
) -> tuple[Sequence[Variant], dict[str, str]]:
    """The variants for this network, and the paper's row for each label: "" unless the parameters are the paper's."""
    variants, papers = (
        make(partial(experiment.adascale, subject, sensitivity=sensitivity, plain=plain)) for plain in (False, True)
    )
    known = {variant.label: variant.method.parameters for variant in papers}
    rows = {v.label: v.label if known.get(v.label) == v.method.parameters else "" for v in variants}
    return variants, rows


def measure(job: Job, variants: Sequence[Variant]) -> ModelRun:
    """The scores of every variant on every set of the job; variants that cannot be fitted are left out."""
    std = job.network.preprocess.std
    made = [replace(variant, method=replace(variant.method).for_input(std)) for variant in variants]
    needs = list(dict.fromkeys(need for variant in made for need in variant.method.wants))
    train = job.images.train if any(_learns(variant) for variant in made) else None
    val = job.extracted("val", job.images.val, needs)
    learnt_from = val if train is None else job.extracted("train", train, ())
    sets = {name: (kind, job.extracted(name, found, needs)) for name, (kind, found) in tested(job.images).items()}
    scores: dict[str, dict[str, Tensor]] = {}
    groups, images = _groups(made), sum(len(found) for _, found in sets.values())
    with progress(f"{job.network.name}: {len(made)} settings", len(groups) * images) as advance:
        for group in groups:
            reference = _reference(group[0], learnt_from if _learns(group[0]) else val)
            for name, (_, found) in sets.items():
                for label, values in _scores(job, group, reference, found):
                    scores.setdefault(label, {})[name] = values
                advance(len(found))
    usable, left_out = dict[str, dict[str, Tensor]](), dict[str, str]()
    for label in (variant.label for variant in made):
        reason = infinite(scores[label]) if label in scores else "it cannot be fitted on these images"
        if reason:
            left_out[label] = reason
        else:
            usable[label] = scores[label]
    if not usable:
        raise InputError(f"{job.network.name}, {made[0].label}: {left_out[made[0].label]}.")
    infos = {name: SetInfo(kind, len(found), found.failures) for name, (kind, found) in sets.items()}
    return ModelRun(job.network.name, infos, None, usable, left_out, next(iter(usable)))


def _learns(variant: Variant) -> bool:
    return variant.method.fits_on.startswith("train")


def _groups(variants: Sequence[Variant]) -> list[list[Variant]]:
    """Variants that one sweep serves."""
    found: dict[Any, list[Variant]] = {}
    for variant in variants:
        found.setdefault((type(variant.method), variant.method.wants, variant.reference), []).append(variant)
    return list(found.values())


def _reference(variant: Variant, images: Extracted) -> Outputs:
    """The outputs that the variant is fitted on, with no more than it needs."""
    needs = [need for need in variant.method.wants if need in images.needs]
    found = replace(images, needs=needs).load()
    return found if variant.reference is None else found[torch.tensor(variant.reference)]


def _scores(job: Job, group: Sequence[Variant], reference: Outputs, found: Extracted) -> Iterator[tuple[str, Tensor]]:
    method, points = group[0].method, [variant.method.parameters for variant in group]
    parts: dict[int, list[Tensor]] = {}
    # The sweep sorts the reference once for each chunk: chunks at least as large as the reference keep this cheap.
    for chunk in replace(found, needs=method.wants).chunks(max(_CHUNK, len(reference))):
        for i, scores in method.sweep(points, reference, job.network.classifier.head, [chunk]):
            if scores is not None:
                parts.setdefault(i, []).append(scores[0])
    yield from ((group[i].label, torch.cat(values)) for i, values in parts.items())
