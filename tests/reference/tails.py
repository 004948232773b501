"""Scores of probabilities against what training samples had: tails, histograms, regrets, combinations."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from tests.reference.common import Array, Head, Sample, Samples, Score, length, softmax, unit
from tests.reference.distances import residual


def entropy_of(z: Array) -> float:
    return -float(sum(p * math.log(p) for p in softmax(z) if p > 0))


def entropy(head: Head, known: Samples) -> Score:
    """``-sum p log p``."""
    return lambda x: entropy_of(x.z)


def temp_scale(head: Head, known: Samples) -> Score:
    """``-max softmax(z / T)``, T with the least cross-entropy on the labelled samples.

    Newton's method on the inverse temperature, whose second derivative is the variance of the logits under ``p``.
    """
    inverse = 1.0
    for _ in range(100):
        first = second = 0.0
        for z, y in zip(known.z, known.y, strict=True):
            p = softmax(z * inverse)
            mean = float(p @ z)
            first, second = first + mean - z[y], second + float(p @ (z - mean) ** 2)
        inverse = max(inverse / 2, inverse - first / second)
    return lambda x: -softmax(x.z * inverse).max()


def grad_uncertainty(head: Head, known: Samples) -> Score:
    """Minus the squared length of the gradient of ``-sum_c log p_c`` by the weights and the bias."""

    def score(x: Sample) -> float:
        by_logit = len(x.z) * softmax(x.z) - 1
        return -float((np.outer(by_logit, x.a) ** 2).sum() + (by_logit**2).sum())

    return score


def sirc(head: Head, known: Samples, first: str = "msp", second: str = "norm", dim: int | None = None) -> Score:
    """``log(m - s1) + log(1 + exp(-B (s2 - A)))``, A = mean - 3 deviations of s2, B = 1 / deviation."""
    off = residual(head, known, dim) if second == "residual" else None

    def s2(x: Sample) -> float:
        return float(np.abs(x.a).sum()) if off is None else -off(x)

    values = np.array([s2(x) for x in known.rows()])
    A, B = values.mean() - 3 * values.std(), 1 / values.std()

    def score(x: Sample) -> float:
        others = np.delete(softmax(x.z), x.z.argmax()).sum()  # 1 - max p, without the cancellation near 1
        uncertain = others if first == "msp" else entropy_of(x.z)
        return math.log(uncertain) + float(np.logaddexp(0, -B * (s2(x) - A)))

    return score


def pnml(head: Head, known: Samples) -> Score:
    """The regret ``log(sum_c p_c / (p_c + (1 - p_c) p_c^k)) / log C`` of the unit feature."""
    units = np.array([unit(a) for a in known.a])
    inverse = np.linalg.pinv(units.T @ units, rcond=units.shape[1] * np.finfo(np.float64).eps, hermitian=True)

    def score(x: Sample) -> float:
        u = unit(x.a)
        along = float(u @ inverse @ u)
        k = along / (1 + along)
        p = softmax(head(u))
        return math.log(float((p / (p + (1 - p) * p**k)).sum())) / math.log(len(p))

    return score


def openmax(head: Head, known: Samples, tail: int = 20, top: int = 3) -> Score:
    """The probability of the unknown class; the CDF of a Weibull of the largest distances revises the top classes."""
    right = known.z.argmax(1) == known.y
    classes = []
    for c in range(len(head.b)):
        own = known.z[right & (known.y == c)]
        mu = own.mean(0)
        farthest = np.sort([length(z - mu) for z in own])[-tail:]
        shape, scale = weibull(farthest + 10000 - farthest[0])
        classes.append((mu, farthest[0], shape, scale))

    def score(x: Sample) -> float:
        ranked = np.argsort(-x.z, kind="stable")[:top]
        revised = x.z.copy()
        for i, c in enumerate(ranked, start=1):
            mu, start, shape, scale = classes[c]
            distance = length(x.z - mu) + 10000 - start
            w = -math.expm1(-math.exp(min(700.0, shape * math.log(distance / scale)))) if distance > 0 else 0.0
            revised[c] = x.z[c] * (1 - w * (top + 1 - i) / top)
        u = float((x.z - revised).sum())
        return 1 / (float(np.exp(revised - u).sum()) + 1)

    return score


def weibull(x: Array) -> tuple[float, float]:
    """Shape and scale of the most likely Weibull distribution with location 0, by Newton's method on the shape."""
    logs = np.log(x / x.max())
    shape = math.pi / (math.sqrt(6) * float(logs.std()))  # as if the logarithms had a Gumbel distribution
    for _ in range(200):
        weight = np.exp(shape * logs)
        mean = float(weight @ logs / weight.sum())
        spread = float(weight @ logs**2 / weight.sum()) - mean**2
        gap = mean - float(logs.mean()) - 1 / shape
        shape = max(shape / 2, shape - gap / (spread + 1 / shape**2))
    return shape, float(x.max() * np.exp(shape * logs).mean() ** (1 / shape))


def weiper(
    head: Head,
    known: Samples,
    delta: float = 1.8,
    repeats: int = 100,
    bins: int = 100,
    smooth: int = 4,
    smooth_perturbed: int = 15,
    lam_1: float = 2.5,
    lam_2: float = 0.1,
    seed: int = 0,
) -> Score:
    """``D_a + lambda_1 D_Wt - lambda_2 mean_r max softmax(Wt_r a + b)``."""
    random, copies = np.random.RandomState(seed), []
    for _ in range(repeats):
        noise = [unit(random.normal(size=len(w))) for w in head.W]
        moved = [w + delta * length(w) * u for w, u in zip(head.W, noise, strict=True)]
        copies.append(np.array(moved, dtype=np.float32).astype(np.float64))  # stored in single precision

    def perturbed(a: Array) -> Array:
        return np.concatenate([copy @ a + head.b for copy in copies])

    off_plain = histogram_distance(known.a, bins, smooth, 0.01)
    off_perturbed = histogram_distance(np.array([perturbed(a) for a in known.a]), bins, smooth_perturbed, 0.025)

    def score(x: Sample) -> float:
        logits = perturbed(x.a)
        sure = np.mean([softmax(z).max() for z in logits.reshape(repeats, -1)])
        return off_plain(x.a) + lam_1 * off_perturbed(logits) - lam_2 * float(sure)

    return score


def histogram_distance(known: Array, bins: int, smooth: int, added: float) -> Callable[[Array], float]:
    """``KL(p, q) + KL(q, p)``: p the mean histogram of the known rows, q the smoothed one of a row."""
    edges = np.linspace(known.min(), known.max() + 1e-8, bins + 1)

    def histogram(values: Array) -> Array:
        return np.array([((low <= values) & (values < high)).mean() for low, high in pairwise(edges)])

    def normalised(shares: Array) -> Array:
        whole: Array = (shares + added) / (shares + added).sum()
        return whole

    p = normalised(np.mean([histogram(row) for row in known], axis=0))
    left = (smooth - 1) // 2

    def distance(values: Array) -> float:
        padded = np.pad(histogram(values), (left, smooth - 1 - left), mode="edge")
        q = normalised(np.convolve(padded, np.ones(smooth) / smooth, mode="valid"))
        return float((p * np.log(p / q)).sum() + (q * np.log(q / p)).sum())

    return distance
