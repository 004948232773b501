"""The scores of one set by every method, chunk by chunk, and the images for the gallery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from adascale.bench.diagnostics import Profiler
from adascale.bench.results import Example, Profile
from adascale.core.answers import label_of
from adascale.core.progress import Advance
from adascale.detectors import Detector
from adascale.extraction.cache import Extracted
from adascale.images.sources import ImageSet

_GALLERY = 12


class Scored:
    """The scores of one set by every method, with one chunk of its shards in memory at a time.

    Results are written into tensors allocated beforehand. Kept in lists, they would fragment the memory that large
    temporaries give back.
    """

    def __init__(
        self, methods: Mapping[str, Detector], profiled: Detector | None, extracted: Extracted, advance: Advance
    ) -> None:
        n, self.extracted = len(extracted), extracted
        self.scores = {label: torch.empty(n, dtype=torch.float64) for label in methods}
        self.predictions = torch.empty(n, dtype=torch.int64)
        correct, labelled, start = 0, 0, 0
        profiler = None if profiled is None else Profiler(profiled, n)
        combining = next((label for label, method in methods.items() if method.speakers), None)
        members = methods[combining].speakers if combining is not None else ()
        self.evidence = {name: torch.empty(n, dtype=torch.float64) for name in members}
        for outputs in extracted.chunks():
            rows = slice(start, start + len(outputs))
            for label, method in methods.items():
                self.scores[label][rows], evidence = method.explained(outputs)
                for name in self.evidence if label == combining else ():
                    self.evidence[name][rows] = evidence[name]
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


def examples(
    sets: Mapping[str, ImageSet], scored: Mapping[str, Scored], shown: str, class_names: Sequence[str], most: bool
) -> list[Example]:
    """The images with the highest (``most``) or the lowest scores."""
    found = []
    for name in sets:
        usable = scored[name].extracted.usable
        scores = scored[name].scores[shown]
        places = scores.sort(descending=most, stable=True).indices[:_GALLERY].tolist()
        found += [(float(scores[i]), name, usable[i], int(scored[name].predictions[i])) for i in places]
    found.sort(key=lambda entry: entry[0], reverse=most)
    return [
        Example(name, sets[name].names[i], score, prediction, sets[name].open(i), label_of(prediction, class_names))
        for score, name, i, prediction in found[:_GALLERY]
    ]
