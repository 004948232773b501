"""Methods that reshape activations or weights and take the energy of the new logits."""

from __future__ import annotations

import math

import numpy as np

from tests.reference.common import Array, E, Head, Sample, Samples, Score, kept, largest, ratio, relu


def scale(head: Head, known: Samples, percentile: float = 85, relu: bool | None = None) -> Score:
    """``-E(W (a e^r) + b)``; with ``relu`` the ratio is that of ``ReLU(a)``."""

    def score(x: Sample) -> float:
        r = ratio(_rectified(x.a, relu, known), kept(len(x.a), percentile))
        return -E(head(x.a * math.exp(r)))

    return score


def lts(head: Head, known: Samples, percentile: float = 95) -> Score:
    """``-E(z r^2)``, ``r`` from ``ReLU(a)``."""
    return lambda x: -E(x.z * ratio(relu(x.a), kept(len(x.a), percentile)) ** 2)


def ash_p(head: Head, known: Samples, percentile: float = 90, relu: bool | None = None) -> Score:
    """The k largest stay, the rest becomes 0."""

    def score(x: Sample) -> float:
        a = _rectified(x.a, relu, known)
        shaped = np.zeros_like(a)
        for j in largest(a, kept(len(a), percentile)):
            shaped[j] = a[j]
        return -E(head(shaped))

    return score


def ash_b(head: Head, known: Samples, percentile: float = 90, relu: bool | None = None) -> Score:
    """The k largest all become ``s1 / k``."""

    def score(x: Sample) -> float:
        a = _rectified(x.a, relu, known)
        k = kept(len(a), percentile)
        shaped, share = np.zeros_like(a), a.sum() / k
        for j in largest(a, k):
            shaped[j] = share
        return -E(head(shaped))

    return score


def ash_s(head: Head, known: Samples, percentile: float = 90, relu: bool | None = None) -> Score:
    """The k largest are multiplied by ``exp(s1 / s2)``."""

    def score(x: Sample) -> float:
        a = _rectified(x.a, relu, known)
        k = kept(len(a), percentile)
        shaped, factor = np.zeros_like(a), math.exp(ratio(a, k))
        for j in largest(a, k):
            shaped[j] = a[j] * factor
        return -E(head(shaped))

    return score


def react(head: Head, known: Samples, percentile: float = 90) -> Score:
    """``-E(W min(a, c) + b)``, ``c`` the percentile of all feature values pooled."""
    c = np.percentile(known.a, percentile)
    return lambda x: -E(head(np.minimum(x.a, c)))


def bfact(head: Head, known: Samples, percentile: float = 95, order: int = 2) -> Score:
    """``-E(W g(a) + b)``, ``g(a) = a / sqrt(1 + (a / c)^(2N))``."""
    c = np.percentile(known.a, percentile)
    return lambda x: -E(head(x.a / np.sqrt(1 + (x.a / c) ** (2 * order))))


def vra(head: Head, known: Samples, low: float = 60, high: float = 95) -> Score:
    """0 at or below alpha, ``a`` between, beta above."""
    alpha, beta = np.percentile(known.a, low), np.percentile(known.a, high)

    def score(x: Sample) -> float:
        return -E(head(np.array([0.0 if v <= alpha else min(v, beta) for v in x.a])))

    return score


def laps(head: Head, known: Samples, width: float = 1.5, shift: float = 13) -> Score:
    """Each feature clipped to ``[mu - (1.5 - 13 m) sigma, mu + (1.5 + 13 m) sigma]``, ``m = mean(mu) - mu``."""
    mu, sigma = known.a.mean(0), known.a.std(0)
    m = mu.mean() - mu
    low, high = mu - (width - shift * m) * sigma, mu + (width + shift * m) * sigma
    return lambda x: -E(head(np.minimum(np.maximum(x.a, low), high)))


def optfs(head: Head, known: Samples, form: str = "plain", bins: int = 100) -> Score:
    """Bins of equal width over ``[q0.001, q0.999]``; each has a factor theta by its share in the predicted logit."""
    low, high = np.quantile(known.a, 0.001), np.quantile(known.a, 0.999)
    width = (high - low) / bins

    def bin_of(value: float) -> int | None:
        if not low <= value <= high:
            return None
        return min(bins - 1, math.floor((value - low) / width))

    importance = np.zeros(bins)
    for a, z in zip(known.a, known.z, strict=True):
        for j, value in enumerate(a):
            if (place := bin_of(value)) is not None:
                importance[place] += head.W[z.argmax(), j] * value / len(known.a)
    theta = 1000 * importance / math.sqrt(importance @ importance)

    def score(x: Sample) -> float:
        shaped = np.array([0.0 if (place := bin_of(v)) is None else theta[place] * v for v in x.a])
        return -E(head(shaped)) if form == "logits" else -float(head.W[x.z.argmax()] @ shaped)

    return score


def dice(head: Head, known: Samples, percentile: float = 90) -> Score:
    """Weights whose contribution ``mean(a) W`` is at or below its percentile become 0."""
    contribution = known.a.mean(0) * head.W
    sparse = Head(np.where(contribution > np.percentile(contribution, percentile), head.W, 0), head.b)
    return lambda x: -E(sparse(x.a))


def line(head: Head, known: Samples, p_w: float = 10, p_a: float = 10, clip: float = 0.8) -> Score:
    """Only features and weights that matter for the class predicted from the clipped activations."""
    contribution = np.array([known.a[known.y == c].mean(0) * head.W[c] for c in range(len(head.b))])
    weights: dict[int, Array] = {}  # one matrix for each class, computed once

    def score(x: Sample) -> float:
        a = np.minimum(x.a, clip)
        c = int(head(a).argmax())
        S_c = contribution[c]
        if c not in weights:
            strength = np.abs(S_c) * head.W
            weights[c] = np.where(strength > np.percentile(strength, p_w), head.W, 0)
        a = np.where(S_c > np.percentile(S_c, p_a), a, 0)
        return -E(weights[c] @ a + head.b)

    return score


def _rectified(a: Array, wanted: bool | None, known: Samples) -> Array:
    """``ReLU(a)`` if that is wanted; None: if one of the known activations is negative."""
    return relu(a) if wanted or (wanted is None and known.a.min() < 0) else a
