"""How well scores separate ID from OOD: exact, on ranks, in float64, ties handled. Higher score = more OOD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adascale.core.errors import InputError


class Metrics(NamedTuple):
    """Shares between 0 and 1. The 95 % are those of ``evaluate``'s ``tpr``.

    fpr95: share of ID flagged where at least 95 % of the OOD is caught (OpenOOD, the AdaSCALE paper).
    fpr95_id: share of OOD accepted where at least 95 % of the ID is kept (ODIN, Energy, ReAct, ASH, LTS).
    aupr_in, aupr_out: area under the precision-recall curve (trapezoids), ID resp. OOD as the positive class.
    """

    auroc: float
    fpr95: float
    fpr95_id: float
    aupr_in: float
    aupr_out: float


def evaluate(id_scores: Tensor, ood_scores: Tensor, tpr: float = 0.95) -> Metrics:
    """All five figures of one ID set against one OOD set; both FPRs at ``tpr``."""
    return Metrics(
        auroc(id_scores, ood_scores),
        fpr_at_tpr(id_scores, ood_scores, tpr),
        fpr_at_tpr(-_checked(ood_scores, "OOD"), -_checked(id_scores, "ID"), tpr),
        aupr(-_checked(ood_scores, "OOD"), -_checked(id_scores, "ID")),
        aupr(id_scores, ood_scores),
    )


def auroc(id_scores: Tensor, ood_scores: Tensor) -> float:
    """The probability that an OOD sample scores above an ID sample; a tie counts one half."""
    negative, positive = _checked(id_scores, "ID").sort().values, _checked(ood_scores, "OOD")
    below = torch.searchsorted(negative, positive, right=False)
    at_most = torch.searchsorted(negative, positive, right=True)
    wins = int(below.sum()) + int(at_most.sum())  # twice the number, so that it stays an exact integer
    return wins / (2 * len(negative) * len(positive))


def fpr_at_tpr(id_scores: Tensor, ood_scores: Tensor, tpr: float = 0.95) -> float:
    """The smallest share of ID scores at or above a threshold that at least ``tpr`` of the OOD scores reach."""
    negative, positive = _checked(id_scores, "ID"), _checked(ood_scores, "OOD").sort(descending=True).values
    return int((negative >= positive[_needed(len(positive), tpr) - 1]).sum()) / len(negative)


def aupr(id_scores: Tensor, ood_scores: Tensor) -> float:
    """Area under precision against recall, OOD as positive, trapezoids between the distinct thresholds."""
    negative, positive = _checked(id_scores, "ID"), _checked(ood_scores, "OOD")
    thresholds = torch.unique(torch.cat([negative, positive])).flip(0)
    caught = _at_or_above(positive, thresholds)
    precision = caught / (caught + _at_or_above(negative, thresholds))
    recall = caught / len(positive)
    start = torch.zeros(1, dtype=torch.float64)
    recall, precision = torch.cat([start, recall]), torch.cat([start + 1, precision])
    return float(torch.trapezoid(precision, recall))


def bootstrap(
    id_scores: Tensor,
    ood_scores: Tensor,
    metric: str = "auroc",
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    tpr: float = 0.95,
) -> tuple[float, float]:
    """A percentile interval for one field of ``Metrics``: both sides are resampled with replacement."""
    if metric not in Metrics._fields:
        raise InputError(f"metric={metric!r}; choose one of {', '.join(Metrics._fields)}.")
    if resamples < 1 or not 0 < level < 1:
        raise InputError(f"resamples={resamples}, level={level}; give at least 1, and a share between 0 and 1.")
    negative, positive = _checked(id_scores, "ID").numpy(), _checked(ood_scores, "OOD").numpy()
    if metric in ("fpr95_id", "aupr_in"):
        negative, positive = -positive, -negative
    values, ranks = np.unique(np.concatenate([negative, positive]), return_inverse=True)
    sides, needed = np.split(ranks, [len(negative)]), _needed(len(positive), tpr)
    generator, rows = np.random.default_rng(seed), max(1, _CELLS // (len(negative) + len(positive)))
    found = []
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        flagged, caught = (_resampled(side, len(values), count, generator) for side in sides)
        found.append(_RESAMPLED[metric](flagged, caught, needed))
    low, high = np.quantile(np.concatenate(found), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


_CELLS = 1_000_000  # scores drawn at once, so that they fit in the processor's cache
_Counts = np.ndarray[Any, np.dtype[np.int64]]
_Shares = np.ndarray[Any, np.dtype[np.float64]]


def _resampled(ranks: _Counts, distinct: int, rows: int, generator: np.random.Generator) -> _Counts:
    """How often each distinct value is drawn, one row for each resample."""
    drawn = ranks[generator.integers(0, len(ranks), (rows, len(ranks)), dtype=np.int32)]
    drawn += np.arange(0, rows * distinct, distinct)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * distinct).reshape(rows, distinct)


def _auroc_of(negative: _Counts, positive: _Counts, needed: int) -> _Shares:
    below = negative.cumsum(1)
    wins = np.einsum("ij,ij->i", positive, 2 * below - negative)
    shares: _Shares = wins / (2 * below[:, -1] * positive.sum(1))
    return shares


def _fpr_of(negative: _Counts, positive: _Counts, needed: int) -> _Shares:
    threshold = (_from_above(positive) >= needed).argmax(1)
    flagged = np.take_along_axis(_from_above(negative), threshold[:, None], 1)[:, 0]
    shares: _Shares = flagged / negative.sum(1)
    return shares


def _aupr_of(negative: _Counts, positive: _Counts, needed: int) -> _Shares:
    caught = _from_above(positive)
    flagged = caught + _from_above(negative)
    precision = np.where(flagged > 0, caught / np.maximum(flagged, 1), 1)
    precision = np.concatenate([np.ones((len(caught), 1)), precision], 1)
    means, steps = (precision[:, 1:] + precision[:, :-1]) / 2, np.diff(caught, axis=1, prepend=0)
    shares: _Shares = (means * steps).sum(1) / positive.sum(1)
    return shares


_RESAMPLED: dict[str, Callable[[_Counts, _Counts, int], _Shares]] = {
    "auroc": _auroc_of,
    "fpr95": _fpr_of,
    "fpr95_id": _fpr_of,
    "aupr_in": _aupr_of,
    "aupr_out": _aupr_of,
}


def _from_above(counts: _Counts) -> _Counts:
    return counts[:, ::-1].cumsum(1)


def _needed(count: int, tpr: float) -> int:
    """The smallest number that is at least the share ``tpr`` of ``count``."""
    if not 0 < tpr <= 1:
        raise InputError(f"tpr={tpr}; it is a share above 0 and at most 1.")
    return next(k for k in range(max(1, int(tpr * count) - 1), count + 1) if k / count >= tpr)


def _at_or_above(scores: Tensor, thresholds: Tensor) -> Tensor:
    return (len(scores) - torch.searchsorted(scores.sort().values, thresholds, right=False)).double()


def _checked(scores: Tensor, side: str) -> Tensor:
    scores = torch.as_tensor(scores).detach().cpu().double().flatten()
    if not len(scores):
        raise InputError(f"There are no {side} scores; both sides need at least one.")
    if not scores.isfinite().all():
        bad = int((~scores.isfinite()).sum())
        raise InputError(f"{bad} of {len(scores)} {side} scores are NaN or infinite; they cannot be ranked.")
    return scores
