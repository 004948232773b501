"""False alarms stay within the promise, and changes are found: streams simulated side by side."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import monitoring
from benchmarks.monitoring import Source, delays, false_alarms, most_allowed, naive_alarms, simulated
from tests.conftest import DATA, needs_data

CONTINUOUS, TIED, DISCRETE = simulated()


def check(source: Source, streams: int, images: int) -> None:
    found = false_alarms(source, streams, images)
    assert found["ever"] <= most_allowed(streams, monitoring.DELTA)
    assert found["continuing"] <= most_allowed(streams, images / monitoring.RUN_LENGTH)


def test_short_streams_of_id_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 30 calibration images and limits that are reached often; every alarm and both kinds count."""
    monkeypatch.setattr(monitoring, "CALIBRATION", 30)
    monkeypatch.setattr(monitoring, "DELTA", 0.3)
    monkeypatch.setattr(monitoring, "RUN_LENGTH", 400)
    for source in (CONTINUOUS, DISCRETE):
        check(source, streams=100, images=120)


def test_tests_of_the_detectors_own_p_values_are_wrong() -> None:
    """They share the error of the calibration images: what `Monitor` avoids."""
    wrong = naive_alarms(CONTINUOUS, streams=40, images=1500)
    assert wrong["Kolmogorov-Smirnov every 100 images"] > 4 * most_allowed(40, monitoring.DELTA)


@pytest.mark.parametrize(("share", "most"), [(0.2, 100), (0.05, 1000)])
def test_ood_images_are_found_in_time(share: float, most: int) -> None:
    found = delays(CONTINUOUS, share, before=0, streams=25, most=most)
    assert np.median(found) < most


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("source", [CONTINUOUS, TIED, DISCRETE], ids=lambda source: source.name)
def test_streams_of_5000_id_images(source: Source) -> None:
    """250 of each; python -m benchmarks.monitoring runs 1,000 of each."""
    check(source, streams=250, images=5000)


@pytest.mark.slow
@needs_data
def test_real_scores_in_random_order() -> None:
    source = monitoring.real(str(DATA), most=2500)
    check(source, streams=250, images=1500)
    found = delays(source, 0.5, before=0, streams=25, most=200)
    assert np.median(found) < 60
