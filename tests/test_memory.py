"""Fitting holds at scale: the features are never copied to float64 as a whole."""

from __future__ import annotations

import pytest

from adascale import detectors
from benchmarks.detectors import made_up, peak_beyond


@pytest.mark.slow
@pytest.mark.parametrize("name", ["knn", "nnguide", "mds", "vim"])
def test_fitting_does_not_copy_the_features(name: str) -> None:
    """30,000 x 2,048: a copy would be 490 MB. benchmarks/RESULTS.md has 200,000, where the limit is 1 GB."""
    outputs, head = made_up(30_000, 2048, 100, ())
    beyond = peak_beyond(lambda: detectors.get(name)().fit(outputs, head))
    assert not beyond > 400
