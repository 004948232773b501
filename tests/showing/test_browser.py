"""The report, the page of scored images and the page of an explanation in a real browser, with axe-core's checks."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
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
from adascale.showing.explain_page import explain_page
from adascale.showing.score_page import Scored, score_page
from tests.browser import needs_browser
from tests.conftest import SmallNet, images, seeded
from tests.devtools import Page, page
from tests.made_up_run import made_up_run

SETS: dict[str, Kind] = {"digits": "id", "letters": "near", "noise": "far"}
PREPROCESS = Preprocess(size=16, crop=16, mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))
AXE = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => one.id + ": " + one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120)).join(" | ")))"""


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, fetched by npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on PATH to fetch axe-core")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), "axe-core@4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)
    if done.returncode:
        pytest.skip(f"npm cannot fetch axe-core: {done.stderr.strip().splitlines()[-1:]}")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf8")


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
    }


def checked(tab: Page, axe: str, scheme: str, width: int) -> dict[str, Any]:
    """What a browser finds on the open page with everything unfolded."""
    tab.look(width, 900, scheme)
    tab.run("for (const part of document.querySelectorAll('details')) part.open = true")
    tab.run(axe + "; 0")
    return {
        "overflow": tab.run("document.documentElement.scrollWidth - innerWidth"),
        "serious": tab.run(AXE),
        "pictures": tab.run("[...document.images].every((image) => image.complete && image.naturalWidth > 0)"),
    }


@needs_browser
@pytest.mark.slow
def test_pages_have_no_error_no_overflow_and_no_serious_violation(
    axe: str, pages: dict[str, str], tmp_path: Path
) -> None:
    with page(tmp_path) as tab:
        for name, text in pages.items():
            (tmp_path / f"{name}.html").write_text(text)
            tab.look(390, 900)
            tab.open((tmp_path / f"{name}.html").as_uri())
            for scheme, width in (("light", 390), ("dark", 1280)):
                found = checked(tab, axe, scheme, width)
                assert found == {"overflow": 0, "serious": [], "pictures": True}, (name, scheme, width)
        assert tab.errors == []


@needs_browser
@pytest.mark.slow
def test_a_click_enlarges_a_picture_and_saves_a_figure(pages: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "scores.html").write_text(pages["scores"])
    with page(tmp_path) as tab:
        tab.look(390, 900)
        tab.open((tmp_path / "scores.html").as_uri())
        tab.run("document.querySelector('button.enlarge').click()")
        assert tab.run("document.querySelector('dialog').open && document.querySelector('dialog img').naturalWidth > 0")
        tab.run("document.querySelector('dialog button').click()")
        assert not tab.run("document.querySelector('dialog').open")
        assert tab.run("document.querySelector('.swipe:not([hidden])') !== null")  # the table of classes is too wide
        saved = """new Promise((done) => {
          const made = URL.createObjectURL;
          URL.createObjectURL = (blob) => { blob.text().then(done); return made(blob); };
          document.querySelector("button.save").click(); })"""
        text = tab.run(saved)
        assert text.startswith("<svg ")
        assert "currentColor" in text
        assert 'style="color: rgb(' in text
        assert tab.errors == []
