"""The transcription itself against the scores of the published reference implementations, where these are at hand."""

from __future__ import annotations

import pytest

from tests.conftest import ORACLES, needs_oracles
from tests.reference.methods import METHODS, UNPUBLISHED
from tests.reference.published import CASES, deviations, metric_deviations

pytestmark = needs_oracles

TOLERANCE = {
    "nnguide": 1e-7,  # the reference divides by the norm plus a small number
    "mds": 1e-7,  # covariances without full rank: eigenvalues close to the cut are inverted
    "rmds": 1e-6,  # the same, and the difference of two nearly equal distances
}


@pytest.mark.parametrize("case", [pytest.param(name, marks=[pytest.mark.slow] * (name[5] in "AC")) for name in CASES])
def test_transcription(case: str) -> None:
    seen = set()
    for method, entry, deviation in deviations(ORACLES, case):
        assert deviation < TOLERANCE.get(method, 1e-9), f"{case} {entry}"
        seen.add(method)
    network_only = set() if case == "case_E_convnet" else {"odin"}
    assert seen == set(METHODS) - network_only - UNPUBLISHED


def test_metrics() -> None:
    for figure, vector, deviation in metric_deviations(ORACLES):
        assert deviation < 1e-12, f"{vector} {figure}"
