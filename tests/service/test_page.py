"""The page of the service in headless Chromium, at a real server on loopback."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from adascale import OODDetector, load_exported
from tests.browser import needs_browser
from tests.conftest import SmallNet, seeded
from tests.devtools import Page, barriers
from tests.images.pictures import RGB, picture
from tests.service.pages import (
    READY,
    address,
    as_png,
    asked,
    opened,
    press,
    short,
    shown,
    text,
    texts,
    visible,
)
from tests.service.serving import running

pytestmark = needs_browser
NAMES = ["ant", "bee", "cat", "dog", "eel"]
KNOWN, UNKNOWN, BROKEN, TRICKY = "known.png", "unknown.png", "broken.png", "<img src=x onerror=fail()>.png"


@pytest.fixture(scope="module")
def detectors() -> dict[str, OODDetector]:
    ordinary = [np.asarray(picture(seed=i)) for i in range(90)]
    model = seeded(SmallNet)
    made = OODDetector(model, preprocess=RGB, classes=NAMES).fit(ordinary, tune=False)
    return {"small": made, "second": OODDetector(model, "msp", preprocess=RGB).fit(ordinary)}


@pytest.fixture(scope="module")
def server(detectors: dict[str, OODDetector], tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running(detectors, tmp_path_factory.mktemp("state")) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pictures")
    picture(seed=1000).save(out / KNOWN)
    Image.new("RGB", (40, 30), "orange").save(out / UNKNOWN)
    picture(seed=1001).save(out / TRICKY)
    (out / BROKEN).write_text("I am no image at all")
    return out


@pytest.fixture
def tab(server: httpx.Client, browser: Page) -> Iterator[Page]:
    """The page, loaded anew. Whatever a test does, the console stays silent, and only this service is asked."""
    opened(browser, address(server)).wait(READY)
    yield browser
    assert browser.errors == []
    urls = browser.run("performance.getEntriesByType('resource').map((one) => one.name)")
    assert len(urls) > 5
    assert all(url.startswith(address(server)) for url in urls), urls


@pytest.mark.parametrize(("name", "verdict"), [(KNOWN, "Like"), (UNKNOWN, "Unlike")])
def test_a_dropped_picture_gets_the_verdict_of_the_service(
    tab: Page, server: httpx.Client, folder: Path, name: str, verdict: str
) -> None:
    tab.drop(folder / name)
    shown(tab, name)
    expected = asked(server, folder / name)
    assert expected["is_ood"] is (verdict == "Unlike")
    assert tab.run(text("#words")) == f"{verdict} the training images: p = {short(expected['p_value'])}"
    first = tab.run(texts("#classes li:first-child > :not(svg)"))
    assert first[0] == expected["class"]
    assert float(first[1].strip("> \u00a0%")) == pytest.approx(100 * expected["probability"], rel=0.06)
    label = tab.run("document.querySelector('#histogram svg').getAttribute('aria-label')")
    assert f"scores {short(expected['score'], 3)}," in label
    loudest = tab.run(texts("#members li:has(em) b"))
    assert len(loudest) == 1
    most = max(expected["evidence"].values())
    assert float(loudest[0].partition(",")[0]) == pytest.approx(most, rel=0.06)
    assert tab.run(text("#say")).startswith(f"{name}: {verdict} the training images: p = ")


def test_a_pasted_picture_gets_a_verdict(tab: Page, server: httpx.Client, folder: Path) -> None:
    data = base64.b64encode((folder / KNOWN).read_bytes()).decode()
    tab.run(f"""(() => {{
        const bytes = Uint8Array.from(atob("{data}"), (letter) => letter.charCodeAt(0));
        const clipboardData = new DataTransfer();
        clipboardData.items.add(new File([bytes], "image.png", {{ type: "image/png" }}));
        document.body.dispatchEvent(new ClipboardEvent("paste", {{ clipboardData, bubbles: true }}));
    }})()""")
    shown(tab, "image.png")
    p = asked(server, folder / KNOWN)["p_value"]
    assert tab.run(text("#words")).endswith(f"p = {short(p)}")


def test_one_unreadable_file_among_several_fails_alone(tab: Page, folder: Path) -> None:
    tab.choose("#file", folder / UNKNOWN, folder / BROKEN, folder / KNOWN)
    shown(tab, UNKNOWN)
    assert tab.run(texts("#own .what b")) == [UNKNOWN, BROKEN, KNOWN]
    assert tab.run(texts("#own .tag")) == ["Unlike", "Not read", "Like"]
    assert tab.run(text("#say")).startswith("2 pictures: 1 unlike the training images. broken.png: ")
    line = tab.run(text("#problem"))
    assert line.startswith("broken.png: ")
    assert len(line) < 120
    tab.run("document.querySelectorAll('#own button')[1].click()")
    shown(tab, KNOWN)
    tab.drop(folder / KNOWN)
    tab.wait("document.getElementById('problem').hidden")


def test_names_are_text_and_never_markup(tab: Page, folder: Path) -> None:
    tab.drop(folder / TRICKY)
    shown(tab, TRICKY)
    assert tab.run("document.images.length") == 0
    assert tab.run(text("#own .what b")) == TRICKY


def test_what_the_method_saw(tab: Page, server: httpx.Client, folder: Path) -> None:
    tab.drop(folder / KNOWN)
    shown(tab, KNOWN)
    steps = asked(server, folder / KNOWN)["explanation"]["adascale"]
    values = dict(zip(tab.run(texts("#chain span")), tab.run(texts("#chain b")), strict=True))
    assert float(values["Percentile"]) == pytest.approx(steps["percentile"], rel=6e-3)
    assert float(values["Scaling"]) == pytest.approx(steps["ratio"], rel=6e-3)
    assert values["Rank"] == f"{steps['rank']} of {steps['reference']}"
    assert tab.run(text("#seen-note")).startswith(f"{steps['values']} of {steps['of']} pixel values")
    pixels = "document.getElementById('seen').toDataURL()"
    marked = tab.run(pixels)
    tab.run("document.getElementById('mask').click()")
    assert tab.wait(f"{pixels} !== {json.dumps(marked)}")


def test_another_detector_answers_for_itself(tab: Page, server: httpx.Client, folder: Path) -> None:
    tab.drop(folder / KNOWN)
    shown(tab, KNOWN)
    tab.run("""(() => { const chosen = document.getElementById("detector"); chosen.value = "second";
        chosen.dispatchEvent(new Event("change")); })()""")
    assert tab.run(visible("#empty"))
    tab.drop(folder / UNKNOWN)
    shown(tab, UNKNOWN)
    expected = asked(server, folder / UNKNOWN, "second")
    assert tab.run(text("#words")).endswith(f"p = {short(expected['p_value'])}")
    assert [tab.run(visible(part)) for part in ("#where", "#evidence", "#steps")] == [True, False, False]


def test_everything_works_by_keyboard(tab: Page, server: httpx.Client, folder: Path) -> None:
    focus = "document.activeElement.id || document.activeElement.dataset.label || document.activeElement.className"
    tab.choose("#file", folder / KNOWN, folder / UNKNOWN)
    shown(tab, KNOWN)
    tab.run("document.activeElement.blur()")
    seen = []
    for _ in range(9):
        press(tab, "Tab", 9)
        seen.append(tab.run(focus))
    assert seen[:7] == ["detector", "file", "camera", "mask", "known", "unknown", "line"]
    assert tab.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.run("document.querySelectorAll('#own button')[1].focus()")
    press(tab, "Enter", 13, "\r")
    shown(tab, UNKNOWN)
    assert tab.run("document.activeElement.getAttribute('aria-current')") == "true"
    tab.run("document.querySelector('[data-label=unknown]').focus()")
    press(tab, " ", 32, " ")
    assert tab.wait("document.querySelector('[data-label=unknown]').getAttribute('aria-pressed') === 'true'")
    assert tab.wait(text("#thanks")) == "Noted: an unknown kind."


@pytest.mark.parametrize("name", [UNKNOWN, TRICKY])
def test_nothing_is_wider_than_a_phone(tab: Page, folder: Path, name: str) -> None:
    tab.look(390, 844, "dark")
    assert tab.run("document.documentElement.scrollWidth") == 390
    tab.choose("#file", folder / name, folder / BROKEN)
    shown(tab, name)
    tab.run("document.getElementById('about').open = true")
    assert tab.run("document.documentElement.scrollWidth") == 390
    small = """[...document.querySelectorAll("button, select, summary, label")].filter((one) => one.checkVisibility())
        .filter((one) => one.getBoundingClientRect().height < 24).map((one) => one.outerHTML)"""
    assert tab.run(small) == []


def test_a_picture_of_the_camera(tab: Page) -> None:
    tab.run("""(() => { const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 48 });
        canvas.getContext("2d").fillRect(0, 0, 64, 48);
        setInterval(() => canvas.getContext("2d").fillRect(0, 0, 64, 48), 20);
        window.film = canvas.captureStream(30);
        navigator.mediaDevices.getUserMedia = async () => window.film; })()""")
    tab.run("document.getElementById('camera').click()")
    tab.wait("!document.getElementById('take').disabled && document.getElementById('video').videoWidth")
    tab.run("document.getElementById('take').click()")
    tab.wait(f"{READY} && {text('#name')}.startsWith('camera ')")
    assert tab.run("window.film.getTracks().map((track) => track.readyState)") == ["ended"]
    assert not tab.run("document.getElementById('shot').open")


def test_without_a_camera_one_line_says_so(tab: Page) -> None:
    tab.run("""navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("", "NotFoundError"); };
        document.getElementById("camera").click()""")
    assert tab.wait(f"{text('#shot-note')} === 'No camera was found.'")


def test_a_hidden_page_asks_nothing(tab: Page) -> None:
    count = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/v1/monitor')).length"
    tab.wait(f"{count} >= 1")
    tab.run("""(() => { window.setTimeout = ((old) => (call, wait) => old(call, Math.min(wait, 20)))(setTimeout);
        Object.defineProperty(document, "hidden", { value: true, configurable: true });
        document.dispatchEvent(new Event("visibilitychange")); })()""")
    tab.run("new Promise((done) => setTimeout(done, 10))")
    time.sleep(0.2)
    before = tab.run(count)
    time.sleep(0.4)
    assert tab.run(count) == before
    tab.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    tab.wait(f"{count} >= {before + 3}")


def test_an_alarm_is_shown_while_one_looks_on(browser: Page, detectors: dict[str, OODDetector], tmp_path: Path) -> None:
    with running({"small": detectors["small"]}, tmp_path) as server:
        tab = opened(browser, address(server))
        tab.wait(f"{READY} && {text('#pulse b')} === 'No alarm'")
        assert not tab.run(visible("#alarm"))
        assert not tab.run(visible("#which"))
        flat = [Image.new("RGB", (40, 30), (255, 100 + shade, shade)) for shade in range(60)]
        answer = server.post("/v1/score", files=[("image", (f"{i}.png", as_png(one))) for i, one in enumerate(flat)])
        assert answer.status_code == 200
        tab.wait(visible("#alarm"))
        assert tab.run(text("#alarm")).startswith("The traffic has changed")
        assert tab.run(text("#pulse b")) == "Alarm"
        tab.wait("document.querySelector('#live dd').textContent === '60'")
        assert browser.errors == []


def test_a_service_with_a_token_asks_for_it(browser: Page, detectors: dict[str, OODDetector]) -> None:
    with running({"small": detectors["small"]}, token="a secret") as server:
        tab = opened(browser, address(server))
        give = """(() => { document.getElementById("token").value = "%s";
            document.getElementById("login").requestSubmit(); })()"""
        tab.wait(visible("#login"))
        tab.run(give % "another")
        assert tab.wait(f"{visible('#problem')} && {text('#problem')}") == "The service does not know this token."
        tab.run(give % "a secret")
        tab.wait(f"{READY} && !{visible('#login')}")
        tab.wait(f"{text('#pulse b')} !== 'A token is needed'")
        assert tab.run("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 1, ""]
        assert all("401" in line for line in browser.errors)  # the browser itself reports them
        tab.run("sessionStorage.clear()")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_barrier_is_found(tab: Page, folder: Path, axe: str, scheme: str, width: int) -> None:
    tab.look(width, 900, scheme)
    assert barriers(tab, axe) == []
    for name in (KNOWN, UNKNOWN):
        tab.choose("#file", folder / name, folder / BROKEN)
        shown(tab, name)
        tab.run("document.getElementById('about').open = true")
        assert barriers(tab, axe) == []
    tab.run("document.getElementById('camera').click()")
    tab.wait(f"{text('#shot-note')} && !{text('#shot-note')}.endsWith('...')")
    assert barriers(tab, axe) == []


@pytest.mark.slow
def test_an_exported_file_gives_its_verdict_without_an_explanation(
    browser: Page, detectors: dict[str, OODDetector], folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    detectors["second"].export(tmp_path / "detector.onnx")
    with running({"file": load_exported(tmp_path / "detector.onnx")}) as server:
        tab = opened(browser, address(server))
        tab.wait(READY)
        tab.drop(folder / UNKNOWN)
        shown(tab, UNKNOWN)
        verdict = detectors["second"](folder / UNKNOWN)
        assert tab.run(text("#words")).endswith(f"p = {short(verdict.p_value.item())}")
        assert tab.run(texts("#classes li span")) == [f"class {verdict.prediction.item()}"]
        assert not any(tab.run(visible(part)) for part in ("#where", "#evidence", "#steps", "#problem"))
        assert browser.errors == []
