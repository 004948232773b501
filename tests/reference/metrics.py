"""The five figures by counting over every threshold; samples with equal scores are flagged together."""

from __future__ import annotations

from tests.reference.common import Array


def auroc(known: Array, unknown: Array) -> float:
    """The share of pairs in which the OOD sample scores higher; a tie counts one half."""
    wins = sum((u > k) + (u == k) / 2 for u in unknown.tolist() for k in known.tolist())
    return float(wins) / (len(known) * len(unknown))


def fpr_at_95(known: Array, unknown: Array) -> float:
    """The least share of ID flagged among all thresholds that catch at least 95 % of the OOD."""
    caught = [(_share(unknown, t), _share(known, t)) for t in _thresholds(known, unknown)]
    return min(flagged for share, flagged in caught if share >= 0.95)


def aupr(known: Array, unknown: Array) -> float:
    """Area under precision against recall by trapezoids, OOD positive; the curve starts at recall 0, precision 1."""
    area, recall, precision = 0.0, 0.0, 1.0
    for t in _thresholds(known, unknown):
        caught, flagged = int((unknown >= t).sum()), int((known >= t).sum())
        now, its = caught / len(unknown), caught / (caught + flagged)
        area += (now - recall) * (its + precision) / 2
        recall, precision = now, its
    return area


def evaluate(known: Array, unknown: Array) -> dict[str, float]:
    """``fpr95``: OOD positive; ``fpr95_id`` and ``aupr_in``: ID positive, so both sides and the sign change places."""
    return {
        "auroc": auroc(known, unknown),
        "fpr95": fpr_at_95(known, unknown),
        "fpr95_id": fpr_at_95(-unknown, -known),
        "aupr_in": aupr(-unknown, -known),
        "aupr_out": aupr(known, unknown),
    }


def _thresholds(known: Array, unknown: Array) -> list[float]:
    return sorted({*known.tolist(), *unknown.tolist()}, reverse=True)


def _share(scores: Array, threshold: float) -> float:
    return int((scores >= threshold).sum()) / len(scores)
