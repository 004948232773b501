"""The evidence of several methods, added."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.reference import adascale, distances, logits
from tests.reference.common import Array, Head, Method, Sample, Samples, Score

LEARN_NOTHING = (logits.gen,)
MADE_FOR_TRAINING_IMAGES = (distances.fdbd, distances.vim)


def combined(head: Head, known: Samples, weights: str = "decorrelated", rule: str = "fisher", folds: int = 5) -> Score:
    """``sum of w e(S)`` over AdaSCALE-L, fDBD, GEN and ViM; ``rule="tippett"``: the largest of them.

    The reference scores of a member that learns come from ``folds`` copies: sample i is scored by the copy that has
    learned from all samples j with j mod folds different from i mod folds.
    """
    count = len(known.a)
    rest = sum(i % folds != 0 for i in range(count))
    members: list[tuple[Method, dict[str, int]]] = [
        (adascale.adascale_l, {}),
        (distances.fdbd, {}),
        (logits.gen, {}),
        (distances.vim, vim_dim(rest, head)),
    ]
    parts = []
    reference = np.empty((count, len(members)))
    for column, (method, given) in enumerate(members):
        score = method(head, known, **given)
        for i, x in enumerate(known.rows()):
            others = np.array([j % folds != i % folds for j in range(count)])
            blind = method(head, Samples(*(field[others] for field in known)), **given)
            reference[i, column] = (score if method in LEARN_NOTHING else blind)(x)
        parts.append(score)
    columns = [list(column) for column in reference.T]
    on_known = np.array([[evidence(c, s) for c, s in zip(columns, row, strict=True)] for row in reference])
    w = np.ones(len(members)) if weights == "equal" else decorrelated(on_known)
    if weights != "equal":
        w = w * [count / (count + 10) if method in MADE_FOR_TRAINING_IMAGES else 1 for method, _ in members]

    def fused(x: Sample) -> float:
        each = [w_m * evidence(c, score(x)) for w_m, c, score in zip(w, columns, parts, strict=True)]
        return float(sum(each) if rule == "fisher" else max(each))

    return fused


def vim_dim(n: int, head: Head) -> dict[str, int]:
    """8 samples for a principal direction; 4 for as many directions as there are classes."""
    most = min(512, head.W.shape[1] // 2)
    return {} if n >= 8 * most else {"dim": max(1, min(most, max(n // 8, min(len(head.b), n // 4))))}


def evidence(reference: Sequence[float], s: float) -> float:
    """``-log p(s)``: p through ``(1 + #{> r}) / (m + 1)`` at every reference score r, exponential beyond them."""
    ranked, m = sorted(reference), len(reference)
    tail = min(max(5, math.ceil(0.1 * m)), m - 1)
    body = sorted(set(ranked[: m - tail]))
    level = {r: -math.log((1 + sum(other > r for other in ranked)) / (m + 1)) for r in body}
    first, u = body[0], body[-1]
    unit = 1e-6 * max(1e-6, *map(abs, ranked))
    if s < first:
        return level[first] * math.exp((s - first) / max(u - first, unit))
    if s > u:
        excess = [r - u for r in ranked if r > u]
        return level[u] + (s - u) / max(sum(excess) / len(excess) if excess else unit, unit)
    below, above = max(r for r in body if r <= s), min(r for r in body if r >= s)
    share = (s - below) / (above - below) if above > below else 0.0
    return level[below] + share * (level[above] - level[below])


def decorrelated(table: Array) -> Array:
    """``C^-1 1``, C the correlations with a third (or ``K / m``) of them taken away, cut off at 0, mean 1."""
    m, K = table.shape
    C = (1 - max(1 / 3, K / m)) * np.corrcoef(table.T)
    np.fill_diagonal(C, 1.0)
    w: Array = np.maximum(np.linalg.inv(C) @ np.ones(K), 0)
    scaled: Array = w * K / w.sum()
    return scaled
