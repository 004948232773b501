"""The page of `examples/browser` in headless Chromium: built, served on loopback, given pictures.

Needs npm and its registry for onnxruntime-web, and chromium; skipped, with the reason, where one is missing.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from adascale import OODDetector, Preprocess
from adascale.export.exported import Exported, load_exported
from tests.browser import needs_browser
from tests.conftest import ROOT, SmallNet
from tests.devtools import Page

pytestmark = [pytest.mark.slow, needs_browser]
BUILD = ROOT / "examples" / "browser" / "build.py"
WORDS = "document.getElementById('words').textContent.replaceAll('\\u00a0', ' ')"
READY = "document.body.dataset.state !== 'loading' && document.body.dataset.state"
KNOWN, PHOTOGRAPH = "known digit 6.png", "photograph of a temple.png"


def build(out: Path, *arguments: str) -> None:
    for module in ("onnx", "onnxscript", "onnxruntime", "sklearn"):
        pytest.importorskip(module)
    command = [sys.executable, str(BUILD), "--out", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if "onnxruntime-web cannot be fetched" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "dist"
    build(out)
    return out


@pytest.fixture
def tab(dist: Path, browser: Page) -> Iterator[Page]:
    """The page of the demo, loaded anew. Whatever a test does, the console stays silent."""
    with served(dist) as url:
        browser.errors.clear()
        browser.look(1280, 900)
        browser.open(url)
        assert browser.wait(READY) == "ready", browser.run(WORDS)
        yield browser
        assert browser.errors == []


def answer(tab: Page, name: str) -> dict[str, Any]:
    """What the detector answered in the page, once it has judged the picture of this name."""
    shown = f"document.getElementById('original').alt === {json.dumps(name)} && document.body.dataset.answer"
    found: dict[str, Any] = json.loads(tab.wait(shown))
    assert found["name"] == name
    return found


def seen(tab: Page) -> np.ndarray[Any, Any]:
    """The pixels that the page gave to the network, RGB."""
    script = """(() => { const { width, height } = document.getElementById("seen");
    const context = new OffscreenCanvas(width, height).getContext("2d");
    context.drawImage(document.getElementById("seen"), 0, 0);
    return [height, width, ...context.getImageData(0, 0, width, height).data]; })()"""
    height, width, *values = tab.run(script)
    return np.array(values, dtype=np.uint8).reshape(height, width, 4)[:, :, :3]


def agrees(found: dict[str, Any], detector: Exported, image: Any) -> None:
    verdict = detector(image)
    assert found["pValue"] == pytest.approx(verdict.p_value.item(), abs=1e-12)
    assert found["score"] == pytest.approx(verdict.score.item(), rel=1e-5)
    assert (found["isOod"], found["prediction"]) == (bool(verdict.is_ood), int(verdict.prediction))


def test_dropped_pictures_get_the_verdict_of_python(tab: Page, dist: Path) -> None:
    detector = load_exported(dist / "detector.onnx")
    names = json.loads((dist / "samples.json").read_text())
    assert len(names) == 6
    decisions = {}
    for name in names:
        tab.drop(dist / "samples" / name)
        found = answer(tab, name)
        agrees(found, detector, dist / "samples" / name)
        agrees(found, detector, seen(tab))
        word = "unlike" if found["isOod"] else "like"
        assert tab.run(WORDS) == f"{word} the training images: p = {found['pValue']:.2g}"
        assert tab.run("document.getElementById('class').textContent") == f"digit {found['prediction']}"
        decisions[name] = found["isOod"]
    assert decisions[PHOTOGRAPH]
    assert not decisions[KNOWN]
    lines = tab.run("[...document.querySelectorAll('#history li span')].map((line) => line.className)")
    assert lines == ["unlike" if decisions[name] else "like" for name in reversed(names)]


def test_a_turned_jpeg_is_read_as_python_reads_it(tab: Page, dist: Path, tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # "turn it by 90 degrees", which Preprocess does not do
    with Image.open(dist / "samples" / KNOWN) as digit:
        digit.resize((96, 120)).convert("RGB").save(tmp_path / "turned.jpg", quality=95, exif=turned)
    tab.choose("#file", tmp_path / "turned.jpg")
    found, detector = answer(tab, "turned.jpg"), load_exported(dist / "detector.onnx")
    agrees(found, detector, seen(tab))
    assert found["pValue"] == pytest.approx(detector(tmp_path / "turned.jpg").p_value.item(), abs=0.02)


def test_alpha_moves_the_decision(tab: Page, dist: Path) -> None:
    tab.run(f"""[...document.querySelectorAll("#samples button")]
        .find((button) => button.textContent === {json.dumps(KNOWN.removesuffix(".png"))}).click()""")
    before = answer(tab, KNOWN)
    assert not before["isOod"]
    assert before["alpha"] == 0.05

    def give(field: str, value: object) -> None:
        tab.run(f"""(() => {{ const field = document.getElementById("{field}"); field.value = "{value}";
            field.dispatchEvent(new Event("input")); }})()""")

    give("alpha", round(before["pValue"] + 0.01, 4))
    tab.wait(f"{WORDS}.startsWith('unlike')")
    assert answer(tab, KNOWN)["pValue"] == before["pValue"]
    assert tab.run("document.querySelectorAll('#history li').length") == 1
    give("alpha", round(before["pValue"] - 0.01, 4))
    tab.wait(f"{WORDS}.startsWith('like')")
    give("slider", 1000)
    tab.wait("JSON.parse(document.body.dataset.answer).alpha === 0.5")
    assert tab.run("document.getElementById('alpha').value") == "0.5"
    give("alpha", 2)
    assert "above 0 and below 1" in tab.run("document.getElementById('rate').textContent")
    give("alpha", 0.0001)
    assert "cannot promise less" in tab.run("document.getElementById('rate').textContent")


def test_pasted_pictures_and_files_that_are_none(tab: Page, dist: Path, tmp_path: Path) -> None:
    text = tmp_path / "letter.txt"
    text.write_text("Dear reader")
    tab.drop(text)
    tab.wait(f"{WORDS} === 'letter.txt is not a picture, or a kind of picture that this browser cannot read.'")
    assert tab.run("document.getElementById('details').hidden")
    tab.run("""fetch("samples/photograph%20of%20a%20temple.png").then((answer) => answer.blob()).then((blob) => {
        const clipboardData = new DataTransfer();
        clipboardData.items.add(new File([blob], "pasted.png", { type: "image/png" }));
        document.dispatchEvent(new ClipboardEvent("paste", { clipboardData }));
    })""")
    assert answer(tab, "pasted.png")["isOod"]
    assert not tab.run("document.getElementById('details').hidden")


def test_the_page_is_labelled_fits_a_phone_and_asks_nobody_else(tab: Page) -> None:
    origin = tab.run("location.origin")
    asked = tab.run("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert any(name.endswith(".wasm") for name in asked)
    assert [name for name in asked if not name.startswith((origin, "blob:", "data:"))] == []
    nameless = """[...document.querySelectorAll("input, button")].filter((field) => !(field.labels?.length
        || field.ariaLabel || field.textContent.trim())).map((field) => field.outerHTML)"""
    assert tab.run(nameless) == []
    assert tab.run("document.getElementById('verdict').ariaLive") == "polite"
    for width in (1280, 390, 320):
        tab.look(width, 800)
        assert tab.run("document.documentElement.scrollWidth") <= width
    tab.send("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
    assert tab.run("document.activeElement.id") == "file"


def test_a_missing_detector_is_said_in_words(dist: Path, browser: Page, tmp_path: Path) -> None:
    for file in dist.iterdir():
        if file.name != "detector.onnx":
            (tmp_path / file.name).symlink_to(file)
    with served(tmp_path) as url:
        browser.open(url)
        assert browser.wait(READY) == "failed"
        assert browser.run(WORDS).startswith("The detector could not be loaded")


def test_a_detector_of_ones_own_brings_its_preprocessing(dist: Path, browser: Page, tmp_path: Path) -> None:
    torch.manual_seed(0)
    preprocess = Preprocess(
        size=20, crop=16, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), interpolation="bicubic"
    )
    detector = OODDetector(SmallNet().eval(), "ebo", preprocess=preprocess, confidence=0.9, alpha=0.1)
    detector.fit(torch.randn(100, 3, 16, 16)).export(tmp_path / "mine.onnx")
    photograph = dist / "samples" / PHOTOGRAPH
    build(tmp_path / "dist", "--detector", str(tmp_path / "mine.onnx"), "--sample", str(photograph))
    with served(tmp_path / "dist") as url:
        browser.errors.clear()
        browser.open(url)
        assert browser.wait(READY) == "ready", browser.run(WORDS)
        assert browser.run("document.getElementById('rate').textContent").startswith(
            "With 90 % confidence, at most 10 %"
        )
        browser.drop(photograph)
        found = answer(browser, PHOTOGRAPH)
        assert browser.errors == []
    agrees(found, load_exported(tmp_path / "mine.onnx"), photograph)
    assert found["alpha"] == 0.1
