"""The one way in which variants of a method are measured: on stored activations.

Views are extracted once and cached; after that a variant costs arithmetic alone. Chunks of each set and one group of
variants with the same views are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from adascale.bench.results import ModelRun, SetInfo
from adascale.bench.run import Job, infinite, tested
from adascale.core.errors import InputError
from adascale.core.progress import progress
from adascale.core.types import Outputs
from adascale.detectors import Detector
from adascale.extraction.cache import Extracted

_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Variant:
    """A method under a label. row: the paper's name of it [default: the label; "" for none]; reference: which of the
    validation images it is fitted on [default: all].
    """

    label: str
    method: Detector
    row: str | None = None
    reference: tuple[int, ...] | None = None


def rows_of(variants: Sequence[Variant], papers: Sequence[Variant]) -> dict[str, str]:
    """The paper's row for each label; "" for a variant that is not as the paper has it."""
    known = {variant.label: variant.method.parameters for variant in papers}
    return {
        variant.label: (variant.label if variant.row is None else variant.row)
        if known.get(variant.label) == variant.method.parameters
        else ""
        for variant in variants
    }


def measure(job: Job, variants: Sequence[Variant]) -> ModelRun:
    """The scores of every variant on every set of the job's images; what cannot be fitted is left out."""
    std = job.network.preprocess.std
    made = [replace(variant, method=replace(variant.method).for_input(std)) for variant in variants]
    views = list(dict.fromkeys(view for variant in made for view in variant.method.views))
    learning = any(variant.method.fits_on.startswith("train") for variant in made)
    val = job.extracted("val", job.images.val, views)
    train = None if not learning or job.images.train is None else job.extracted("train", job.images.train, ())
    sets = {name: (kind, job.extracted(name, found, views)) for name, (kind, found) in tested(job.images).items()}
    scores: dict[str, dict[str, Tensor]] = {}
    groups, images = _groups(made), sum(len(found) for _, found in sets.values())
    with progress(f"{job.network.name}: {len(made)} settings", len(groups) * images) as advance:
        for group in groups:
            learns = train is not None and group[0].method.fits_on.startswith("train")
            reference = _reference(group[0], train if learns and train is not None else val)
            for name, (_, found) in sets.items():
                for label, values in _scores(job, group, reference, found):
                    scores.setdefault(label, {})[name] = values
                advance(len(found))
    unfitted = "it cannot be fitted on these images"
    left_out = {v.label: infinite(scores[v.label]) if v.label in scores else unfitted for v in made}
    left_out = {label: reason for label, reason in left_out.items() if reason}
    usable = {variant.label: scores[variant.label] for variant in made if variant.label not in left_out}
    if not usable:
        raise InputError(f"{job.network.name}, {made[0].label}: {left_out[made[0].label]}.")
    infos = {name: SetInfo(kind, len(found), found.failures) for name, (kind, found) in sets.items()}
    return ModelRun(job.network.name, infos, None, usable, left_out, next(iter(usable)))


def _groups(variants: Sequence[Variant]) -> list[list[Variant]]:
    """Those that one sweep serves."""
    found: dict[Any, list[Variant]] = {}
    for variant in variants:
        found.setdefault((type(variant.method), variant.method.views, variant.reference), []).append(variant)
    return list(found.values())


def _reference(variant: Variant, images: Extracted) -> Outputs:
    """What the variant is fitted on, with no more views than it needs."""
    views = [view for view in variant.method.views if view in images.views]
    found = replace(images, views=views).load()
    return found if variant.reference is None else found[torch.tensor(variant.reference)]


def _scores(job: Job, group: Sequence[Variant], reference: Outputs, found: Extracted) -> Iterator[tuple[str, Tensor]]:
    method, points = group[0].method, [variant.method.parameters for variant in group]
    parts: dict[int, list[Tensor]] = {}
    # The reference is sorted once a chunk: chunks no smaller than it keep that from counting.
    for chunk in replace(found, views=method.views).chunks(max(_CHUNK, len(reference))):
        for i, scores in method.sweep(points, reference, job.network.classifier.head, [chunk]):
            if scores is not None:
                parts.setdefault(i, []).append(scores[0])
    yield from ((group[i].label, torch.cat(values)) for i, values in parts.items())
