"""Scores of logits and probabilities."""

from __future__ import annotations

import numpy as np

from tests.reference.common import E, Head, Sample, Samples, Score, softmax


def msp(head: Head, known: Samples) -> Score:
    """``-max softmax(z)``."""
    return lambda x: -softmax(x.z).max()


def mls(head: Head, known: Samples) -> Score:
    """``-max z``."""
    return lambda x: -x.z.max()


def ebo(head: Head, known: Samples, temperature: float = 1) -> Score:
    """``-T E(z / T)``."""
    return lambda x: -temperature * E(x.z / temperature)


def odin(head: Head, known: Samples, temperature: float = 1000) -> Score:
    """``-max softmax(z(x') / T)``; ``a_eps`` holds the activations of ``x'`` (see `images.odin_input`)."""
    return lambda x: -softmax(head(x.a_eps) / temperature).max()


def gen(head: Head, known: Samples, gamma: float = 0.1, top: int = 100) -> Score:
    """``sum of p^gamma (1 - p)^gamma`` over the M most probable classes."""

    def score(x: Sample) -> float:
        p = softmax(x.z)
        others = [np.delete(p, c).sum() for c in range(len(p))]  # 1 - p, without the cancellation near p = 1
        return float(sum(p[c] ** gamma * others[c] ** gamma for c in np.argsort(-p)[:top]))

    return score


def gradnorm(head: Head, known: Samples) -> Score:
    """``-||a||_1 sum_c |C p_c - 1|``."""
    C = len(head.b)
    return lambda x: -np.abs(x.a).sum() * np.abs(C * softmax(x.z) - 1).sum()


def klm(head: Head, known: Samples) -> Score:
    """``min_c KL(softmax(z) || d_c)``, ``d_c`` the mean softmax of the samples predicted as ``c``.

    A class that is never predicted has no ``d_c``.
    """
    p_known, predicted = np.array([softmax(z) for z in known.z]), known.z.argmax(1)
    d = [p_known[predicted == c].mean(0) for c in range(len(head.b)) if (predicted == c).any()]

    def score(x: Sample) -> float:
        p = softmax(x.z)
        return min(float((p * np.log(p / d_c)).sum()) for d_c in d)

    return score
