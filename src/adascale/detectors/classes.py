"""Statistics of the training samples, over all of them or by class, streamed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Outputs
from adascale.detectors.rows import in_chunks
from adascale.maths.quantiles import quantiles

BANK_ROWS = 2048
Map = Callable[[Tensor], Tensor]


def as_is(features: Tensor) -> Tensor:
    """The features themselves, in float64."""
    return features.double()


def class_means(
    reference: Outputs, name: str, *, every_class: bool = False, keep: Tensor | None = None, of: Map = as_is
) -> tuple[Tensor, Tensor]:
    """Mean features (C, D) and counts (C) by label; ``keep``: a mask of the samples that count; ``of``: what is made of
    the features first.

    A class without a sample has mean 0; with ``every_class`` it is refused instead.
    """
    classes, features = reference.logits.shape[1], reference.features.shape[1]
    total = torch.zeros(classes, features, dtype=torch.float64)
    counts = torch.zeros(classes, dtype=torch.float64)
    start = 0
    for chunk in in_chunks(reference):
        rows = slice(None) if keep is None else keep[start : start + len(chunk)]
        start += len(chunk)
        assert chunk.labels is not None  # checked by the base class
        labels = chunk.labels[rows]
        total.index_add_(0, labels, of(chunk.features[rows]))
        counts += torch.bincount(labels, minlength=classes)
    missing = (counts == 0).nonzero().flatten().tolist()
    if every_class and missing:
        kind = "training" if keep is None else "correctly classified training"
        shown = ", ".join(map(str, missing[:5])) + (" ..." if len(missing) > 5 else "")
        raise InputError(
            f"{name} needs a {kind} sample of every class; {len(missing)} of {classes} have none (class {shown})."
        )
    return total / counts.clamp_min(1)[:, None], counts


def mean_features(reference: Outputs, of: Map = as_is) -> Tensor:
    """The mean (D) of all samples; ``of``: what is made of the features first."""
    total = torch.zeros(reference.features.shape[1], dtype=torch.float64)
    for chunk in in_chunks(reference):
        total += of(chunk.features).sum(0)
    return total / len(reference)


def feature_quantiles(reference: Outputs, shares: Sequence[float]) -> list[float]:
    """The exact quantiles of all feature values, pooled."""
    return quantiles(lambda: (chunk.features for chunk in in_chunks(reference)), shares)


def feature_deviations(reference: Outputs, mean: Tensor) -> Tensor:
    """The standard deviation (D) of each feature."""
    total = torch.zeros_like(mean)
    for chunk in in_chunks(reference):
        total += (chunk.features.double() - mean).square().sum(0)
    return (total / len(reference)).sqrt()


def covariance(reference: Outputs, centres: Tensor, of: Map = as_is) -> Tensor:
    """``mean of (a - m)(a - m)^T`` (D, D); ``centres``: one ``m`` (D) for all, or one for each class (C, D); ``of``:
    what is made of the features first.
    """
    size = reference.features.shape[1]
    total = torch.zeros(size, size, dtype=torch.float64)
    for chunk in in_chunks(reference):
        # A copy in float64 first: it is ours to write into, and one block less of memory.
        centred = of(chunk.features)
        centred = centred.clone() if centred is chunk.features else centred
        centred -= centres if centres.ndim == 1 else centres[chunk.labels]
        total.addmm_(centred.T, centred)
    return total / len(reference)


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
