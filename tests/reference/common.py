"""What the transcriptions share: samples, the last layer, energy, softmax, and the two counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class Sample(NamedTuple):
    """One image: activations ``a``, logits ``z``, activations ``a_eps`` of its perturbed copy."""

    a: Array
    z: Array
    a_eps: Array


class Samples(NamedTuple):
    """Many images, with the labels where a method needs them."""

    a: Array
    z: Array
    a_eps: Array
    y: npt.NDArray[np.int64]

    def rows(self) -> list[Sample]:
        return [Sample(*row) for row in zip(self.a, self.z, self.a_eps, strict=True)]


class Head(NamedTuple):
    """The last layer, ``z = W a + b``."""

    W: Array
    b: Array

    def __call__(self, a: Array) -> Array:
        return self.W @ a + self.b


Score = Callable[[Sample], float]
Method = Callable[..., Score]


def E(z: Array) -> float:
    """``log sum_c exp(z_c)``; the largest logit is taken out first so that nothing overflows."""
    top = float(z.max())
    return top + math.log(float(np.exp(z - top).sum()))


def softmax(z: Array) -> Array:
    p: Array = np.exp(z - E(z))
    return p


def length(v: Array) -> float:
    return math.sqrt(float(v @ v))


def unit(v: Array) -> Array:
    """``v / ||v||``; the zero vector stays zero."""
    return v / length(v) if v.any() else v


def kept(D: int, percentile: float) -> int:
    """How many entries lie above a percentile: ``D - round(D p / 100)``, half to even, never fewer than 1."""
    return max(1, D - round(D * percentile / 100))


def counted(D: int, percent: float) -> int:
    """How many entries a percentage is: ``max(1, floor(D k / 100))``."""
    return max(1, math.floor(D * percent / 100))


def largest(a: Array, k: int) -> npt.NDArray[np.intp]:
    """The indices of the ``k`` largest entries; of equal values the lower index comes first."""
    return np.argsort(-a, kind="stable")[:k]


def ratio(a: Array, k: int) -> float:
    """``r = sum(a) / sum of its k largest``; 1 where no entry is positive."""
    return float(a.sum() / np.sort(a)[-k:].sum()) if a.max() > 0 else 1.0


def relu(a: Array) -> Array:
    positive: Array = np.maximum(a, 0)
    return positive


def scores(method: Method, W: Array, b: Array, known: Samples, samples: Samples, **parameters: Any) -> Array:
    """The scores of all ``samples`` after learning from ``known``."""
    score = method(Head(W, b), known, **parameters)
    return np.array([score(sample) for sample in samples.rows()])
