"""AdaSCALE-A and -L with every intermediate value, and the ablation that scores by ``Q`` alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tests.reference.common import E, Head, Sample, Samples, Score, counted, kept, largest, ratio, relu


class Steps(NamedTuple):
    """The values on the way from activations to ``r``."""

    Q: float
    C_o: float
    statistic: float
    F: float
    percentile: float
    r: float


def shift(x: Sample, k1: float) -> float:
    """``Q``: sum of ``|a_eps - a|`` over the k1 % largest of ``a``."""
    i1 = largest(x.a, counted(len(x.a), k1))
    return float(np.abs(x.a_eps[i1] - x.a[i1]).sum())


def mass(x: Sample, k2: float) -> float:
    """``C_o``: sum of ``ReLU(a_eps)`` over the k2 % largest of ``a``."""
    i2 = largest(x.a, counted(len(x.a), k2))
    return float(relu(x.a_eps[i2]).sum())


def top(x: Sample, k2: float) -> float:
    """The sum of the k2 % largest of ``a``."""
    return float(x.a[largest(x.a, counted(len(x.a), k2))].sum())


def statistic_of(x: Sample, statistic: str, k1: float, k2: float, lam: float) -> float:
    """``Q' = lambda Q + C_o``, or what an ablation puts in its place."""
    return {
        "q_prime": lam * shift(x, k1) + mass(x, k2),
        "q": shift(x, k1),
        "c_o": mass(x, k2),
        "top": top(x, k2),
        "q_top": lam * shift(x, k1) + top(x, k2),
    }[statistic]


def steps(
    x: Sample,
    known: Samples,
    *,
    p_min: float = 60,
    p_max: float = 85,
    k1: float = 1,
    k2: float = 5,
    lam: float = 10,
    statistic: str = "q_prime",
    reference: list[float] | None = None,
) -> Steps:
    """All values for one sample. ``reference``: the statistics of ``known``, where they were computed before."""
    if reference is None:
        reference = [statistic_of(one, statistic, k1, k2, lam) for one in known.rows()]
    q = statistic_of(x, statistic, k1, k2, lam)
    F = sum(value <= q for value in reference) / len(reference)
    p = p_min + (1 - F) * (p_max - p_min)
    r = ratio(relu(x.a), kept(len(x.a), p))
    return Steps(shift(x, k1), mass(x, k2), q, F, p, r)


def _r(known: Samples, **parameters: float | str) -> Score:
    settings = {"k1": 1, "k2": 5, "lam": 10, "statistic": "q_prime", **parameters}
    names = ("statistic", "k1", "k2", "lam")
    reference = [statistic_of(one, *(settings[name] for name in names)) for one in known.rows()]  # type: ignore[arg-type]
    return lambda x: steps(x, known, reference=reference, **settings).r  # type: ignore[arg-type]


def adascale_a(head: Head, known: Samples, **parameters: float | str) -> Score:
    """``S = -E(W (a e^r) + b)``."""
    r = _r(known, **parameters)
    return lambda x: -E(head(x.a * math.exp(r(x))))


def adascale_l(head: Head, known: Samples, **parameters: float | str) -> Score:
    """``S = -E(z r^2)``."""
    r = _r(known, **parameters)
    return lambda x: -E(x.z * np.square(r(x)))


def activation_shift(head: Head, known: Samples, k1: float = 1) -> Score:
    """``S = Q``."""
    return lambda x: shift(x, k1)
