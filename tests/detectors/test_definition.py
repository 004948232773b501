"""AdaSCALE against an independent transcription of its definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adascale import Head, Outputs, View, detectors

Array = np.ndarray[Any, np.dtype[np.float64]]


def shift_by_definition(a: Array, ae: Array, p: dict[str, float]) -> float:
    """Q' of one sample, term by term."""
    k1, k2 = (max(1, math.floor(len(a) * p[k] / 100)) for k in ("k1", "k2"))
    order = sorted(range(len(a)), key=lambda i: (-a[i], i))
    return p["lam"] * math.fsum(abs(ae[i] - a[i]) for i in order[:k1]) + math.fsum(max(ae[i], 0) for i in order[:k2])


def score_by_definition(a: Array, f: float, w: Array, b: Array, p: dict[str, float], variant: str) -> float:
    """The score of one sample whose Q' has rank share ``f``."""
    percentile = p["p_min"] + (1 - f) * (p["p_max"] - p["p_min"])
    keep = max(1, len(a) - int(np.round(len(a) * percentile / 100)))
    positive = np.maximum(a, 0)
    kept = np.sort(positive)[::-1][:keep].sum()
    r = positive.sum() / kept if kept > 0 else 1.0
    z = w @ (a * np.exp(r)) + b if variant == "a" else (w @ a + b) * r**2
    return -float(np.logaddexp.reduce(z))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([8, 64, 130]),
    signed=st.booleans(),
    p_min=st.sampled_from([0, 60, 80]),
    span=st.sampled_from([0, 5, 19]),
    k1=st.sampled_from([1, 10, 100]),
    k2=st.sampled_from([5, 100]),
    lam=st.sampled_from([0.0, 0.1, 10.0]),
    variant=st.sampled_from(["a", "l"]),
)
def test_adascale_equals_the_definition(
    seed: int, size: int, signed: bool, p_min: int, span: int, k1: float, k2: float, lam: float, variant: str
) -> None:
    rng = np.random.default_rng(seed)
    w, b = rng.normal(size=(4, size)) / 4, rng.normal(size=4)
    a = rng.normal(size=(12, size))
    a = a if signed else np.maximum(a, 0)
    ae = a + rng.normal(size=a.shape) * 0.2
    settings_ = {"p_min": p_min, "p_max": p_min + span, "k1": k1, "k2": k2, "lam": lam}
    head = Head(torch.from_numpy(w), torch.from_numpy(b))
    outputs = Outputs(head(torch.from_numpy(a)), torch.from_numpy(a), {View(): torch.from_numpy(ae)})
    detector = detectors.get(f"adascale_{variant}")(**settings_)
    shifts = np.array([shift_by_definition(a[i], ae[i], settings_) for i in range(12)])
    # A reference row meets itself in the eCDF; rounding must not decide whether it counts.
    shares = [np.count_nonzero(shifts[:6] <= q * (1 + 1e-12)) / 6 for q in shifts]
    expected = [score_by_definition(a[i], shares[i], w, b, settings_, variant) for i in range(12)]
    np.testing.assert_allclose(detector.fit(outputs[:6], head).score(outputs).numpy(), expected, rtol=1e-9, atol=1e-9)
