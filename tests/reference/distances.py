"""Distances and similarities to training samples, class means and decision boundaries."""

from __future__ import annotations

import math

import numpy as np

from tests.reference.common import Array, E, Head, Sample, Samples, Score, length, softmax, unit


def nnguide(head: Head, known: Samples, k: int = 100, fraction: float = 1.0) -> Score:
    """``-E(z) guidance``: the mean of the K largest products of ``a / ||a||`` with the bank ``(a / ||a||) E(z)``.

    All of ``known`` is the bank: which share of the training samples is drawn is not part of the definition.
    """
    assert fraction == 1.0
    bank = [unit(a) * E(z) for a, z in zip(known.a, known.z, strict=True)]
    return lambda x: -E(x.z) * sum(sorted(float(row @ unit(x.a)) for row in bank)[-k:]) / k


def knn(head: Head, known: Samples, k: int = 50) -> Score:
    """The distance of ``a / ||a||`` to its K-th nearest among those of ``known``."""
    bank = [unit(a) for a in known.a]
    return lambda x: sorted(length(unit(x.a) - row) for row in bank)[k - 1]


def mds(head: Head, known: Samples) -> Score:
    """``min_c (a - mu_c)^T P (a - mu_c)``, P the pseudo-inverse of the shared covariance."""
    means = {c: known.a[known.y == c].mean(0) for c in np.unique(known.y)}
    L = _root(np.array([a - means[y] for a, y in zip(known.a, known.y, strict=True)]))
    centres = [L.T @ mean for mean in means.values()]

    def score(x: Sample) -> float:
        point = L.T @ x.a
        return min(length(point - centre) ** 2 for centre in centres)

    return score


def rmds(head: Head, known: Samples) -> Score:
    """`mds` minus the distance to one Gaussian of all samples."""
    by_class, mean = mds(head, known), known.a.mean(0)
    L = _root(known.a - mean)
    return lambda x: by_class(x) - length(L.T @ (x.a - mean)) ** 2


def _root(centred: Array) -> Array:
    """``L`` with ``L L^T = P``, the pseudo-inverse of the covariance.

    Eigenvalues at or below ``D eps`` of the largest count as zero, as in the pseudo-inverse of the reference.
    """
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    positive = values > len(values) * np.finfo(np.float64).eps * values[-1]
    root: Array = vectors[:, positive] / np.sqrt(values[positive])
    return root


def residual(head: Head, known: Samples, dim: int | None = None) -> Score:
    """The length of ``a - o`` outside the ``dim`` strongest eigenvectors, ``o = -pinv(W) b``."""
    D = head.W.shape[1]
    dim = min(512, D // 2) if dim is None else dim
    o = -np.linalg.pinv(head.W) @ head.b
    _, vectors = np.linalg.eigh((known.a - o).T @ (known.a - o) / len(known.a))
    R = vectors[:, : D - dim]  # eigenvalues ascend
    return lambda x: length(R.T @ (x.a - o))


def vim(head: Head, known: Samples, dim: int | None = None) -> Score:
    """``alpha residual - E(z)``, alpha = mean of the largest training logit over mean training residual."""
    off = residual(head, known, dim)
    rows = known.rows()
    alpha = sum(float(x.z.max()) for x in rows) / sum(off(x) for x in rows)
    return lambda x: alpha * off(x) - E(x.z)


def she(head: Head, known: Samples, metric: str = "inner_product") -> Score:
    """Likeness to the mean feature of the correctly classified training samples of the predicted class."""
    right = known.z.argmax(1) == known.y
    means = [known.a[right & (known.y == c)].mean(0) for c in range(len(head.b))]

    def score(x: Sample) -> float:
        mean = means[x.z.argmax()]
        return {
            "inner_product": -float(x.a @ mean),
            "euclidean": length(x.a - mean),
            "cosine": -float(unit(x.a) @ unit(mean)),
        }[metric]

    return score


def fdbd(head: Head, known: Samples, normaliser: str = "distance") -> Score:
    """Minus the summed distances to the decision boundaries, over ``||a - mean||`` or ``||a||``; 0 over 0 is 0."""
    mean = known.a.mean(0)

    def score(x: Sample) -> float:
        y = int(x.z.argmax())
        others = [c for c in range(len(x.z)) if c != y]
        total = sum(abs(x.z[y] - x.z[c]) / length(head.W[y] - head.W[c]) for c in others)
        over = length(x.a - mean if normaliser == "distance" else x.a)
        return -float(total) / over if over > 0 else 0.0

    return score


def nci(head: Head, known: Samples, norm_weight: float = 1e-4) -> Score:
    """``-(w_c . (a - mean) / ||a - mean|| + alpha ||a||_1)``, ``c`` the predicted class."""
    mean = known.a.mean(0)
    return lambda x: -float(head.W[x.z.argmax()] @ unit(x.a - mean) + norm_weight * np.abs(x.a).sum())


def relation(head: Head, known: Samples, power: float = 1, threshold: float = 0.03) -> Score:
    """Minus the sum of ``k^power`` over the training samples with ``k = max(0, cos) (p . p_i)`` above the threshold."""
    bank = [(unit(a), softmax(z)) for a, z in zip(known.a, known.z, strict=True)]

    def score(x: Sample) -> float:
        u, p = unit(x.a), softmax(x.z)
        edges = [max(0.0, float(u @ v)) * float(p @ q) for v, q in bank]
        return -math.fsum(edge**power for edge in edges if edge > threshold)

    return score
