"""Few images and no training set: how the default degrades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

import torch

from adascale import InputError
from benchmarks.generalise.activations import Subject
from benchmarks.generalise.measuring import Candidate, figures, scores

COUNTS = (10, 30, 64, 300)
_DRAWS = 3

Few = dict[str, dict[int, float]]  # candidate -> number of images -> mean of near and far AUROC, in percent


def few_images(subject: Subject, candidates: Sequence[Candidate], draws: int = _DRAWS) -> Few:
    """Means over random choices of the images; all images are one choice. Without training images."""
    return {one.name: {n: _at(subject, one, n, draws) for n in COUNTS} for one in candidates}


def _at(subject: Subject, candidate: Candidate, n: int, draws: int) -> float:
    total, without = len(subject.val), replace(candidate, train=False)
    if candidate.method.fits_on == "nothing" or n >= total:
        draws = 1
    found = []
    for draw in range(draws):
        rows = torch.randperm(total, generator=torch.Generator().manual_seed(draw))[:n]
        try:
            found.append(figures(subject, scores(subject, without, rows)).auroc)
        except InputError:  # too few to fit on
            return float("nan")
    return mean(found)
