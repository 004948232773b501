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
    means, L = gaussians(known)
    centres = [L.T @ mean for mean in means]

    def score(x: Sample) -> float:
        point = L.T @ x.a
        return min(length(point - centre) ** 2 for centre in centres)

    return score


def gaussians(known: Samples) -> tuple[list[Array], Array]:
    """The class means, and ``L`` with ``L L^T`` the pseudo-inverse of the covariance that all classes share."""
    means = {c: known.a[known.y == c].mean(0) for c in np.unique(known.y)}
    return list(means.values()), _root(np.array([a - means[y] for a, y in zip(known.a, known.y, strict=True)]))


def mds_odin(head: Head, known: Samples) -> Score:
    """`mds` of the perturbed image; ``a_eps`` holds its activations (see `images.mahalanobis_input`)."""
    by_class = mds(head, known)
    return lambda x: by_class(x._replace(a=x.a_eps))


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


def mahalanobis_pp(head: Head, known: Samples) -> Score:
    """`mds` of ``a / ||a||``."""
    by_class = mds(head, known._replace(a=np.array([unit(a) for a in known.a])))
    return lambda x: by_class(x._replace(a=unit(x.a)))


def neco(head: Head, known: Samples, dim: int | None = None, max_logit: bool = True) -> Score:
    """Minus the share of the standardised feature's length in the first principal components, times the max logit."""
    mean, deviation = known.a.mean(0), known.a.std(0)
    scale = np.where(deviation > 0, deviation, 1)
    _, lengths, directions = np.linalg.svd((known.a - mean) / scale)
    variances = lengths**2
    if dim is None:
        dim = next(d for d in range(1, len(variances) + 1) if variances[:d].sum() >= 0.9 * variances.sum())

    def score(x: Sample) -> float:
        point = (x.a - mean) / scale
        share = length(directions[:dim] @ point) / length(point) if point.any() else 0.0
        return -share * float(x.z.max()) if max_logit else -share

    return score


def cfood(head: Head, known: Samples, rho: float = 0.01, fraction: float = 1.0) -> Score:
    """The least kappa at which ``d_i(kappa) >= ||v - r_i||^2`` for a share rho of the bank, else 1.

    All of ``known`` is the bank: which share of the training samples is drawn is not part of the definition.
    """
    assert fraction == 1.0
    bank = np.array([unit(a) for a in known.a])
    n = len(bank)
    grid, kappas = [*np.linspace(0.001, 0.1, 100), *np.linspace(0.105, 0.5, 81), *np.linspace(0.51, 0.99, 49)], []
    places: list[int] = []
    for kappa in grid:
        place = int(kappa * n - 1)
        if not places or place > places[-1]:
            places.append(place)
            kappas.append(float(kappa))
    sorted_ = [np.sort([length(one - other) ** 2 for other in bank]) for one in bank]

    def score(x: Sample) -> float:
        v = unit(x.a)
        squares = [length(v - row) ** 2 for row in bank]
        for kappa, place in zip(kappas, places, strict=True):
            near = sum(row[place + 1] + 1e-12 >= square for row, square in zip(sorted_, squares, strict=True))
            if near / n >= rho:
                return kappa
        return 1.0

    return score


def caref(head: Head, known: Samples) -> Score:
    """``||a - m_c||_1 / ||a||_1``, ``m_c`` the mean of the samples predicted as the predicted class."""
    means = _predicted_means(head, known)
    return lambda x: float(np.abs(x.a - means[x.z.argmax()]).sum() / max(1e-12, np.abs(x.a).sum()))


def cadref(head: Head, known: Samples, logit_score: str = "energy") -> Score:
    """The error along the signs of the predicted class's weights over L(z), that against them over the mean L."""
    means = _predicted_means(head, known)

    def L(z: Array) -> float:
        p = np.sort(softmax(z))[-max(10, len(z) // 10) :]
        found = {"energy": E(z), "mls": z.max(), "msp": p.max(), "gen": 1 / float((p**0.1 * (1 - p) ** 0.1).sum())}
        return float(found[logit_score])

    typical = max(1e-12, float(np.mean([L(z) for z in known.z])))

    def score(x: Sample) -> float:
        c = int(x.z.argmax())
        d = (x.a - means[c]) * np.sign(head.W[c])
        error = sum(v for v in d if v > 0) / max(1e-12, L(x.z)) + sum(-v for v in d if v < 0) / typical
        return float(error) / max(1e-12, float(np.abs(x.a).sum()))

    return score


def _predicted_means(head: Head, known: Samples) -> list[Array]:
    predicted = known.z.argmax(1)
    return [known.a[predicted == c if (predicted == c).any() else slice(None)].mean(0) for c in range(len(head.b))]


def gmm(head: Head, known: Samples, components: int = 50, dim: int = 50, seed: int = 0) -> Score:
    """``-log sum_k w_k exp(-(y - mu_k)^T P (y - mu_k) / 2)``, y the first principal components; EM from drawn rows."""
    mean = known.a.mean(0)
    _, _, directions = np.linalg.svd(known.a - mean)
    project = directions[:dim]
    y = (known.a - mean) @ project.T
    drawn = sorted(np.random.RandomState(seed).permutation(len(y))[:components])
    shares = np.array([np.eye(components)[np.argmin([length(row - y[i]) for i in drawn])] for row in y])
    before = -math.inf
    for _ in range(50):
        weights, means, covariance = _mixture(y, shares)
        log_det = np.linalg.slogdet(covariance)[1]
        inverse = np.linalg.inv(covariance)
        joint = np.array(
            [
                [
                    math.log(w) - log_det / 2 - (row - m) @ inverse @ (row - m) / 2
                    for w, m in zip(weights, means, strict=True)
                ]
                for row in y
            ]
        )
        likely = np.array([E(row) for row in joint])
        shares = np.exp(joint - likely[:, None])
        if abs(likely.mean() - before) < 1e-3:
            break
        before = likely.mean()
    weights, means, covariance = _mixture(y, shares)
    inverse = np.linalg.inv(covariance)

    def score(x: Sample) -> float:
        at = project @ (x.a - mean)
        return -E(
            np.array([math.log(w) - (at - m) @ inverse @ (at - m) / 2 for w, m in zip(weights, means, strict=True)])
        )

    return score


def class_gmm(head: Head, known: Samples, reg: float = 1e-6) -> Score:
    """``-log sum_c pi_c N(a; mu_c, Sigma_c + reg I)`` over the labelled classes."""
    parts = []
    for c in np.unique(known.y):
        own = known.a[known.y == c]
        covariance = np.cov(own.T, bias=True) + reg * np.eye(own.shape[1])
        log_det = np.linalg.slogdet(2 * np.pi * covariance)[1]
        parts.append((own.mean(0), np.linalg.inv(covariance), math.log(len(own) / len(known.a)) - log_det / 2))
    return lambda x: -E(np.array([peak - (x.a - mu) @ inverse @ (x.a - mu) / 2 for mu, inverse, peak in parts]))


def _mixture(y: Array, shares: Array) -> tuple[Array, Array, Array]:
    """Weights, means and the one covariance (+ 1e-6 on its diagonal) of points that belong to components by shares."""
    counts = shares.sum(0) + 10 * np.finfo(np.float64).eps
    means = (shares.T @ y) / counts[:, None]
    covariance = np.zeros((y.shape[1], y.shape[1]))
    for k, mean in enumerate(means):
        covariance += (shares[:, k, None] * (y - mean)).T @ (y - mean)
    return counts / counts.sum(), means, covariance / counts.sum() + 1e-6 * np.eye(y.shape[1])
