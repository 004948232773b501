"""How many ID images AdaSCALE needs to be fitted on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from adascale.bench.results import Row
from adascale.paper.studies.base import Block
from adascale.paper.studies.build import block, missing
from adascale.paper.studies.experiment import Experiment
from adascale.paper.studies.study import TEXTS, Study, figures_of
from adascale.paper.studies.variants import Variant, measure

SIZES = (10, 100, 1000, 5000)
DRAWS = 10


@dataclass(frozen=True)
class ValidationSize(Study):
    """AdaSCALE-A fitted on random draws of the validation images: mean and deviation over the draws."""

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        for subject in experiment.subjects:
            job = experiment.job(subject)
            draws = _draws(len(job.extracted("val", job.images.val, ())), experiment.seed)
            # Equal draws, such as those of all images, are measured once.
            labels = {indices: str(i) for i, indices in enumerate(dict.fromkeys(indices for _, indices in draws))}
            method = experiment.adascale(subject)
            run = measure(job, [Variant(label, method, indices) for indices, label in labels.items()])
            by_label: dict[str, list[Row]] = {}
            for row in figures_of(run):
                by_label.setdefault(row.method, []).append(row)
            rows = [
                replace(row, method=f"n={size}", model=f"draw {i}")
                for i, (size, indices) in enumerate(draws)
                for row in by_label[labels[indices]]
            ]
            place = None if experiment.changed(subject) else experiment.compared(subject)
            yield missing(block(subject.name, rows, self.name, place), run)

    def notes(self, experiment: Experiment) -> list[str]:
        return [*experiment.start_notes(), self.note]


def _draws(images: int, seed: int) -> list[tuple[int, tuple[int, ...]]]:
    """The size and the indices of every draw, in the order of the sizes."""
    sizes = [*(size for size in SIZES if size < images), images]
    orders = [torch.randperm(images, generator=torch.Generator().manual_seed(seed + turn)) for turn in range(DRAWS)]
    return [(size, tuple(sorted(order[:size].tolist()))) for size in sizes for order in orders]


STUDIES: tuple[Study, ...] = (ValidationSize(*TEXTS["n-val"]),)
