"""How well scores separate ID from OOD: exact, on ranks, in float64, ties handled. Higher score = more OOD."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from adascale.errors import InputError


class Metrics(NamedTuple):
    """Shares between 0 and 1.

    fpr95: share of ID flagged where at least 95 % of the OOD is caught (OpenOOD, the AdaSCALE paper).
    fpr95_id: share of OOD accepted where at least 95 % of the ID is kept (ODIN, Energy, ReAct, ASH, LTS).
    aupr_in, aupr_out: area under the precision-recall curve (trapezoids), ID resp. OOD as the positive class.
    """

    auroc: float
    fpr95: float
    fpr95_id: float
    aupr_in: float
    aupr_out: float


def evaluate(id_scores: Tensor, ood_scores: Tensor) -> Metrics:
    """All five figures of one ID set against one OOD set."""
    return Metrics(
        auroc(id_scores, ood_scores),
        fpr_at_tpr(id_scores, ood_scores),
        fpr_at_tpr(-_checked(ood_scores, "OOD"), -_checked(id_scores, "ID")),
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
    if not 0 < tpr <= 1:
        raise InputError(f"tpr={tpr}; it is a share above 0 and at most 1.")
    negative, positive = _checked(id_scores, "ID"), _checked(ood_scores, "OOD").sort(descending=True).values
    needed = next(k for k in range(max(1, int(tpr * len(positive)) - 1), len(positive) + 1) if k / len(positive) >= tpr)
    return int((negative >= positive[needed - 1]).sum()) / len(negative)


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


def _at_or_above(scores: Tensor, thresholds: Tensor) -> Tensor:
    return (len(scores) - torch.searchsorted(scores.sort().values, thresholds, right=False)).double()


def _checked(scores: Tensor, side: str) -> Tensor:
    scores = torch.as_tensor(scores).detach().cpu().double().flatten()
    if not len(scores):
        raise InputError(f"There are no {side} scores; both sides need at least one.")
    if not scores.isfinite().all():
        bad = int((~scores.isfinite()).sum())
        raise InputError(f"{bad} of {len(scores)} {side} scores are NaN or infinite; no rank can be given to them.")
    return scores
