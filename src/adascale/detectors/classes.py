"""Statistics of the training samples, over all of them or by class, streamed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Outputs
from adascale.detectors.rows import in_chunks
from adascale.detectors.statistics import State, Statistic, Sums
from adascale.maths.pieces import predicted
from adascale.maths.quantiles import Digits, selected

BANK_ROWS = 2048
Map = Callable[[Tensor], Tensor]
By = Literal["label", "predicted", "correct"]


def as_is(features: Tensor) -> Tensor:
    """The features themselves, in float64."""
    return features.double()


@dataclass(frozen=True)
class ClassSums(Sums):
    """Summed features (C, D), or logits (C, C), and counts (C) of each class. by: the class of a sample is its label,
    or the predicted one; ``correct``: its label, and only samples whose label is predicted count. of: what is made of
    the values first.
    """

    by: By = "label"
    values: Literal["features", "logits"] = "features"
    of_values: Map = as_is

    def of(self, outputs: Outputs, start: int) -> State:
        classes, size = outputs.logits.shape[1], getattr(outputs, self.values).shape[1]
        total, counts = torch.zeros(classes, size, dtype=torch.float64), torch.zeros(classes, dtype=torch.float64)
        for chunk in in_chunks(outputs):
            rows, labels = self._chosen(chunk)
            total.index_add_(0, labels, self.of_values(getattr(chunk, self.values)[rows]))
            counts += torch.bincount(labels, minlength=classes)
        return {"total": total, "counts": counts}

    def value(self, state: State) -> tuple[Tensor, Tensor]:
        """The means, 0 for a class without a sample, and the counts."""
        return state["total"] / state["counts"].clamp_min(1)[:, None], state["counts"]

    def _chosen(self, chunk: Outputs) -> tuple[slice | Tensor, Tensor]:
        found = None if self.by == "label" else predicted(chunk.logits)
        if self.by == "predicted" and found is not None:
            return slice(None), found
        assert chunk.labels is not None  # checked before
        rows = slice(None) if found is None else torch.as_tensor(found == chunk.labels)
        return rows, chunk.labels[rows]


def refuse_missing(counts: Tensor, name: str, kind: str = "training") -> None:
    """Refuse classes without a sample."""
    missing, classes = (counts == 0).nonzero().flatten().tolist(), len(counts)
    if missing:
        shown = ", ".join(map(str, missing[:5])) + (" ..." if len(missing) > 5 else "")
        raise InputError(
            f"{name} needs a {kind} sample of every class; {len(missing)} of {classes} have none (class {shown})."
        )


@dataclass(frozen=True)
class MeanFeatures(Sums):
    """The mean (D) of all samples; of: what is made of the features first."""

    of_values: Map = as_is

    def of(self, outputs: Outputs, start: int) -> State:
        total = torch.zeros(outputs.features.shape[1], dtype=torch.float64)
        for chunk in in_chunks(outputs):
            total += self.of_values(chunk.features).sum(0)
        return {"total": total, "rows": torch.tensor(len(outputs))}

    def value(self, state: State) -> Tensor:
        return state["total"] / int(state["rows"])


@dataclass(frozen=True)
class FeatureDeviations(Sums):
    """The standard deviation (D) of each feature from these means."""

    mean: Tensor

    def of(self, outputs: Outputs, start: int) -> State:
        total = torch.zeros_like(self.mean)
        for chunk in in_chunks(outputs):
            total += (chunk.features.double() - self.mean).square().sum(0)
        return {"total": total, "rows": torch.tensor(len(outputs))}

    def value(self, state: State) -> Tensor:
        return (state["total"] / int(state["rows"])).sqrt()


@dataclass(frozen=True)
class Covariance(Sums):
    """``mean of (a - m)(a - m)^T`` (D, D); centres: one ``m`` (D) for all, or one for each class (C, D); of: what is
    made of the features first.
    """

    centres: Tensor
    of_values: Map = as_is

    def of(self, outputs: Outputs, start: int) -> State:
        size = outputs.features.shape[1]
        total = torch.zeros(size, size, dtype=torch.float64)
        for chunk in in_chunks(outputs):
            # A copy in float64 first: it is ours to write into, and one block less of memory.
            centred = self.of_values(chunk.features)
            centred = centred.clone() if centred is chunk.features else centred
            centred -= self.centres if self.centres.ndim == 1 else self.centres[chunk.labels]
            total.addmm_(centred.T, centred)
        return {"total": total, "rows": torch.tensor(len(outputs))}

    def value(self, state: State) -> Tensor:
        return state["total"] / int(state["rows"])


@dataclass(frozen=True)
class _Values(Sums):
    """How many feature values there are, and whether some are in float64."""

    def of(self, outputs: Outputs, start: int) -> State:
        wide = len(outputs) and outputs.features.dtype == torch.float64
        return {"count": torch.tensor(outputs.features.numel()), "wide": torch.tensor(int(wide))}


@dataclass(frozen=True)
class _DigitCounts(Sums):
    """How often the digits occur in the feature values."""

    digits: Digits

    def of(self, outputs: Outputs, start: int) -> State:
        total = self.digits.nothing()
        for chunk in in_chunks(outputs):
            total += self.digits.counted(chunk.features)
        return {"counts": total}

    def value(self, state: State) -> Tensor:
        return state["counts"]


def feature_quantiles(shares: Sequence[float]) -> Generator[Statistic, Any, list[float]]:
    """The exact quantiles of all feature values, pooled."""
    found = yield _Values()
    return (yield from selected(int(found["count"]), bool(found["wide"]), shares, _DigitCounts))


def bank_blocks(bank: Tensor, rows: int = BANK_ROWS) -> tuple[Tensor, ...]:
    """The stored training samples in pieces, so that a product with a chunk stays small."""
    return torch.split(bank, rows)


def precision_root(covariance: Tensor, name: str) -> Tensor:
    """``L`` (D, rank) with ``L L^T`` the pseudo-inverse: directions without variance are left out."""
    values, vectors = torch.linalg.eigh(covariance)
    keep = has_variance(values)
    if not keep.any():
        raise InputError(
            f"{name} needs samples that differ within their classes; give several training samples of each."
        )
    root: Tensor = vectors[:, keep] / values[keep].sqrt()
    return root


def has_variance(eigenvalues: Tensor) -> Tensor:
    """Which of the ascending eigenvalues of a covariance count as more than rounding: those above ``D eps`` times the
    largest, as in the pseudo-inverse of SciPy and of the reference codes.
    """
    floor = len(eigenvalues) * torch.finfo(torch.float64).eps
    return eigenvalues > eigenvalues[-1].clamp_min(0) * floor


def squared_distances(points: Tensor, centres: Tensor) -> Tensor:
    """``||x - c||^2`` for all pairs, as one matrix product; never negative."""
    squares = points.square().sum(1, keepdim=True) + centres.square().sum(1) - 2 * points @ centres.T
    return squares.clamp_min(0)
