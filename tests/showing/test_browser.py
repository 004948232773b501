"""The reports and the pages of scored images, explanations and monitoring in a real browser, with axe-core's checks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from adascale import Calibration, OODDetector, Preprocess
from adascale.bench.columns import Kind
from adascale.bench.headline import standing
from adascale.bench.page import report_page
from adascale.images.sources import ImageSet
from adascale.monitoring import Monitor
from adascale.monitoring import report_page as monitor_page
from adascale.showing.explain_page import explain_page
from adascale.showing.score_page import Scored, score_page
from tests.browser import needs_browser
from tests.conftest import SmallNet, images, seeded
from tests.devtools import Page, barriers
from tests.made_up_run import made_up_run

SETS: dict[str, Kind] = {"digits": "id", "letters": "near", "noise": "far"}
PREPROCESS = Preprocess(size=16, crop=16, mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    run = made_up_run(methods=["combined", "adascale_a", "msp"], sets=SETS, images=60, full=False)
    model = dataclasses.replace(run.models[0], deployed="combined", calibration=Calibration(torch.randn(90) - 18))
    found = standing(model)
    assert found is not None
    report = dataclasses.replace(run, models=[model], standings={model.model: found})
    detector = OODDetector(seeded(SmallNet), preprocess=PREPROCESS).fit(images(60), tune=False)
    scored, names = Scored(), [f"a folder with a long name/picture {place:04d}.png" for place in range(30)]
    rows: list[dict[str, Any]] = [
        {
            "image": name,
            "score": 20.0 - place,
            "p_value": (place + 1) / 40,
            "is_ood": place < 2,
            "prediction": place % 4,
        }
        for place, name in enumerate(names)
    ]
    scored.add([{**row, "error": None} for row in rows])
    pictures = ImageSet(names, items=[Image.new("RGB", (200, 120), (8 * i, 90, 120)) for i in range(30)])
    return {
        "report": report_page(report),
        "scores": score_page(scored, pictures, detector, "a folder"),
        "explain": explain_page([detector.explain(images(1, seed=seed)) for seed in (1, 2)], detector),
        "monitor": monitor_page(watched(), source="camera.csv"),
    }


def watched() -> Monitor:
    """A stream that changes after 100 images."""
    draw = torch.Generator().manual_seed(0)
    monitor = Monitor(torch.randn(200, generator=draw).numpy())
    shift = 5 * (torch.arange(150) >= 100)
    monitor.update_many((torch.randn(150, generator=draw) + shift).numpy(), None, [f"{i}.png" for i in range(150)])
    return monitor


def checked(tab: Page, axe: str, scheme: str, width: int) -> dict[str, Any]:
    """What a browser finds on the open page with everything unfolded."""
    tab.look(width, 900, scheme)
    tab.run("for (const part of document.querySelectorAll('details')) part.open = true")
    return {
        "overflow": tab.run("document.documentElement.scrollWidth - innerWidth"),
        "serious": [found for found in barriers(tab, axe) if found[0] in ("serious", "critical")],
        "pictures": tab.run("[...document.images].every((image) => image.complete && image.naturalWidth > 0)"),
    }


@needs_browser
@pytest.mark.slow
def test_pages_have_no_error_no_overflow_and_no_serious_violation(
    axe: str, browser: Page, pages: dict[str, str], tmp_path: Path
) -> None:
    for name, text in pages.items():
        (tmp_path / f"{name}.html").write_text(text)
        browser.look(390, 900)
        browser.open((tmp_path / f"{name}.html").as_uri())
        for scheme, width in (("light", 390), ("dark", 1280)):
            found = checked(browser, axe, scheme, width)
            assert found == {"overflow": 0, "serious": [], "pictures": True}, (name, scheme, width)
    assert browser.errors == []


@needs_browser
@pytest.mark.slow
def test_a_click_enlarges_a_picture_and_saves_a_figure(browser: Page, pages: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "scores.html").write_text(pages["scores"])
    browser.look(390, 900)
    browser.open((tmp_path / "scores.html").as_uri())
    browser.run("document.querySelector('button.enlarge').click()")
    large = "document.querySelector('dialog img').naturalWidth > 0"
    assert browser.run(f"document.querySelector('dialog').open && {large}")
    browser.run("document.querySelector('dialog button').click()")
    assert not browser.run("document.querySelector('dialog').open")
    assert browser.run("document.querySelector('.swipe:not([hidden])') !== null")  # the table of classes is too wide
    saved = """new Promise((done) => {
      const made = URL.createObjectURL;
      URL.createObjectURL = (blob) => { blob.text().then(done); return made(blob); };
      document.querySelector("button.save").click(); })"""
    text = browser.run(saved)
    assert text.startswith("<svg ")
    assert "currentColor" in text
    assert 'style="color: rgb(' in text
    assert browser.errors == []
