"""The page of a monitor: what it says, that it is safe, and that a real browser shows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adascale.monitoring import Monitor, report_page
from tests.browser import ask, needs_browser

NASTY = "<script>alert('&\"')</script>"


@pytest.fixture(scope="module")
def watched() -> Monitor:
    random = np.random.default_rng(0)
    monitor = Monitor(random.normal(size=200), random.integers(0, 5, 200))
    scores = random.normal(size=300) + 5 * (np.arange(300) >= 200)
    monitor.update_many(scores, random.integers(0, 5, 300), [f"{NASTY}{i}.png" for i in range(300)])
    return monitor


@pytest.fixture(scope="module")
def text(watched: Monitor) -> str:
    return report_page(watched, source="camera.csv")


def test_the_page_says_what_happened(watched: Monitor, text: str) -> None:
    assert "Alarm: Images score higher than in-distribution images do (since about image 20" in text
    assert "300 images of camera.csv" in text
    assert NASTY not in text
    assert text.count("<svg") == 2
    for alarm in watched.alarms:
        assert alarm.title in text


def test_a_quiet_stream_and_an_empty_one() -> None:
    monitor = Monitor(np.random.default_rng(0).normal(size=100))
    assert "No alarm in 0 images." in report_page(monitor)
    monitor.update_many(np.random.default_rng(1).normal(size=50))
    text = report_page(monitor)
    assert "No alarm in 50 images." in text
    assert "Images with the most evidence" not in text


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_it_without_errors(text: str, width: int, tmp_path: Path) -> None:
    script = "function look() { return document.documentElement.scrollWidth - innerWidth; }"
    found = ask(text, script, tmp_path, width=width)
    assert found["errors"] == []
    assert found["answer"] <= 0  # nothing sticks out to the side
