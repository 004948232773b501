"""Fitting holds at scale: memory beyond the features does not grow with their number."""

from __future__ import annotations

import pytest
from benchmarks.detectors import made_up, peak_beyond

from adascale import detectors

METHODS = ("knn", "nnguide", "mds", "vim")


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_fitting_stays_within_one_gigabyte(name: str) -> None:
    """50,000 x 2,048 here; benchmarks/RESULTS.md has 200,000."""
    outputs, head = made_up(50_000, 2048, 100, ())
    beyond = peak_beyond(lambda: detectors.get(name)().fit(outputs, head))
    assert beyond < 1000
