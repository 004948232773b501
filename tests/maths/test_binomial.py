"""Binomial tails and beta quantiles against SciPy, which the package itself does not need."""

from __future__ import annotations

import math

import pytest

from adascale.maths.binomial import at_most, beta_quantile


def test_by_hand() -> None:
    assert at_most(0, 2, 0.5) == pytest.approx(0.25, abs=1e-15)
    assert at_most(1, 2, 0.25) == pytest.approx(1 - 1 / 16, abs=1e-15)
    assert (at_most(-1, 3, 0.4), at_most(3, 3, 0.4)) == (0, 1)
    assert at_most(0, 59, 0.05) == pytest.approx(0.95**59, rel=1e-12)
    assert beta_quantile(0.3, 1, 1) == pytest.approx(0.3, abs=1e-14)
    assert beta_quantile(0.95, 1, 20) == pytest.approx(1 - 0.05 ** (1 / 20), abs=1e-14)


@pytest.mark.parametrize("n", [1, 7, 60, 1000, 100_000])
@pytest.mark.parametrize("p", [1e-6, 0.01, 0.05, 0.5, 0.999])
def test_tails_agree_with_scipy(n: int, p: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    spread = math.sqrt(n * p * (1 - p)) + 1
    counts = {min(max(int(n * p + z * spread), 0), n) for z in (-8, -3, -1, 0, 1, 3, 8)}
    for k in counts:
        assert at_most(k, n, p) == pytest.approx(float(stats.binom.cdf(k, n, p)), abs=1e-12)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 20), (7, 144), (3, 2), (50, 951), (5000, 95_001)])
@pytest.mark.parametrize("q", [0.05, 0.5, 0.95])
def test_quantiles_agree_with_scipy(a: int, b: int, q: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert beta_quantile(q, a, b) == pytest.approx(float(stats.beta.ppf(q, a, b)), abs=1e-12)
