"""Candidates, their scores on a network, and figures with bootstrap draws."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adascale import AdascaleWarning, InputError
from adascale.decision.fitting import Plan
from adascale.detectors import Detector
from adascale.metrics import auroc, fpr_at_tpr
from benchmarks.generalise.activations import Subject

ALPHA = 0.05
DRAWS = 500
Array = NDArray[np.float64]
Scores = Mapping[str, Tensor]  # "id" and every OOD set


@dataclass(frozen=True)
class Candidate:
    """A line of the tables. tune: as in `OODDetector.fit`. train: whether it is given training images too."""

    name: str
    method: Detector
    tune: bool | None = None
    train: bool = True


class Figures(NamedTuple):
    """In percent, the mean of near and far, each the mean over its sets."""

    auroc: float
    fpr95: float


def scores(subject: Subject, candidate: Candidate, rows: Tensor | None = None, seed: int = 0) -> Scores:
    """The scores after the fit that a user would make: images to choose on, to fit on and for the threshold apart.

    rows: the ID images that are given [default: all]. seed: that of the split.
    """
    rows = torch.arange(len(subject.val)) if rows is None else rows
    plan = Plan(candidate.method, tune=candidate.tune, alpha=ALPHA, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdascaleWarning)
        learned = subject.train if candidate.train else None
        method = plan.fit(subject.val[rows], subject.head, learned, subject.outliers(rows)).method
        found = {name: method.score(part) for name, part in {"id": subject.id, **subject.unknown}.items()}
    # The largest finite number takes the place of +inf: the figures depend on ranks alone.
    return {name: part.nan_to_num(posinf=torch.finfo(torch.float64).max) for name, part in found.items()}


def all_scores(subject: Subject, candidates: Sequence[Candidate]) -> dict[str, Scores]:
    """The candidates that can be fitted on what there is for this network."""
    found = {}
    for candidate in candidates:
        try:
            found[candidate.name] = scores(subject, candidate)
        except InputError:
            continue
    return found


def figures(subject: Subject, found: Scores) -> Figures:
    values = [(auroc(found["id"], found[name]), fpr_at_tpr(found["id"], found[name])) for name in subject.unknown]
    mean = torch.tensor(values, dtype=torch.float64).T @ shares(subject)
    return Figures(*(100 * mean).tolist())


def shares(subject: Subject) -> Tensor:
    """The weight of each OOD set: near and far count the same, and so do the sets of each."""
    sides = [1 / len(side) for side in (subject.near, subject.far) for _ in side]
    return torch.tensor(sides, dtype=torch.float64) / 2


class Resamples:
    """Bootstrap draws of a network's test images, the same for every candidate, so that differences are paired."""

    def __init__(self, subject: Subject, draws: int = DRAWS, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.names, self.shares = list(subject.unknown), shares(subject).numpy()
        sizes = {"id": len(subject.id)} | {name: len(part) for name, part in subject.unknown.items()}
        self.counts = {name: generator.multinomial(n, np.full(n, 1 / n), draws) for name, n in sizes.items()}

    def figures(self, found: Scores) -> tuple[Array, Array]:
        """AUROC and FPR@95 in percent for each draw."""
        known = found["id"].numpy()
        values = [self._of_set(known, found[name].numpy(), name) for name in self.names]
        aurocs, fprs = (np.stack(part, 1) @ self.shares for part in zip(*values, strict=True))
        return 100 * aurocs, 100 * fprs

    def _of_set(self, known: Array, unknown: Array, name: str) -> tuple[Array, Array]:
        """AUROC and FPR@95 of one set for each draw: sums over pairs, weighted by how often each image was drawn."""
        mine, theirs = self.counts["id"].astype(np.float64), self.counts[name].astype(np.float64)
        unknown, theirs = np.sort(unknown)[::-1], theirs[:, np.argsort(unknown)[::-1]]
        wins = (unknown[:, None] > known) + 0.5 * (unknown[:, None] == known)
        aurocs = ((theirs @ wins) * mine).sum(1) / (len(known) * len(unknown))
        reached = (theirs.cumsum(1) >= math.ceil(0.95 * len(unknown) - 1e-9)).argmax(1)
        fprs = ((unknown[reached][:, None] <= known) * mine).sum(1) / len(known)
        return aurocs, fprs


def interval(draws: Array) -> tuple[float, float]:
    """95 %, from the quantiles of the draws."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)
