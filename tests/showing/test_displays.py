"""What notebooks show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from adascale import InputError, NotFittedError, OODDetector, Preprocess, extract_batch
from tests.conftest import SmallNet, images, seeded
from tests.made_up_run import made_up_run

NASTY = "<script>alert(1)</script>"
PREPROCESS = Preprocess(size=16, crop=16, mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))


@pytest.fixture(scope="module")
def detector() -> OODDetector:
    names = [NASTY, "bee", "cat", "dog", "eel"]
    return OODDetector(seeded(SmallNet), preprocess=PREPROCESS, classes=names).fit(images(60), tune=False)


def test_verdicts_on_files_are_shown_with_their_pictures(detector: OODDetector, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for i in range(3):
        Image.fromarray(draw.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    verdict = detector(tmp_path)
    shown = verdict._repr_html_()
    assert shown.count("<img ") == 3
    for i in range(3):
        assert f"p-value {verdict.p_value[i]:.4g}" in shown
    assert NASTY not in shown
    (tmp_path / "0.png").unlink()
    assert "<img " not in verdict._repr_html_()  # a table, without the picture that is gone


def test_verdicts_on_tensors_are_a_table_or_shown_with_the_images_given(detector: OODDetector) -> None:
    given = images(30, seed=4)
    verdict = detector(given)
    table = verdict._repr_html_()
    assert table.count('<th scope="row"') == 30
    assert "adds: adascale_l" in table
    assert "<img " not in table
    shown = verdict.show(given)
    assert shown._repr_html_().count("<img ") == 24
    assert "and 6 more" in shown._repr_html_()
    assert repr(shown) == repr(verdict)
    pixels = [np.zeros((16, 16, 3), dtype=np.uint8)] * 30
    assert verdict.show(pixels)._repr_html_().count("<img ") == 24
    with pytest.raises(InputError, match="29 images for 30 verdicts"):
        verdict.show(given[1:])


def test_outputs_say_what_they_hold(detector: OODDetector) -> None:
    outputs = extract_batch(detector.classifier, images(4), detector.method.views, torch.arange(4))
    shown = outputs._repr_html_()
    for text in ("4 x 5", "4 x 128", "labels", str(detector.method.views[0])):
        assert text in shown


def test_a_detector_shows_its_promise_and_its_scores(detector: OODDetector) -> None:
    shown = detector._repr_html_()
    assert detector.guarantee in shown
    assert "<svg " in shown
    assert detector.calibration is not None
    figure = detector.plot(images(20, seed=7))
    (axes,) = figure.axes
    assert any(np.allclose(line.get_xdata(), detector.threshold) for line in axes.lines)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["calibration images", "scored images"]
    fresh = OODDetector(seeded(SmallNet))
    assert "Not fitted" in fresh._repr_html_()
    with pytest.raises(NotFittedError):
        fresh.plot()


def test_an_explanation_shows_its_steps(detector: OODDetector) -> None:
    found = detector.explain(images(1))
    shown = found._repr_html_()
    assert all(step.value is None or f">{step.value:.9g}<" in shown for step in found.steps)
    assert "Explanation(combined, score" in repr(found)


def test_a_run_is_a_sortable_table_and_two_displays_do_not_share_ids() -> None:
    run = made_up_run(images=30, profiles=False)
    first, second = run._repr_html_(), run._repr_html_()
    assert first.count('class="sortable"') == 1
    assert "Near-OOD" in first
    assert first != second
    assert "http" not in first
