"""What the tests of the page say to it and ask it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from tests.devtools import Page
from tests.service.serving import score

READY = "document.body.dataset.state === 'ready'"


def text(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)}).textContent"


def texts(selector: str) -> str:
    return f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)"


def address(server: httpx.Client) -> str:
    return f"{str(server.base_url).rstrip('/')}/"


def short(value: float, digits: int = 2) -> str:
    return f"{float(f'{value:.{digits}g}'):g}"


def as_png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def asked(server: httpx.Client, file: Path, detector: str = "small") -> dict[str, Any]:
    """What the service says about a picture."""
    answer = score(server, file.read_bytes(), "/v1/score", params={"detector": detector, "explain": True})
    found: dict[str, Any] = answer.json()[0]
    return found


def visible(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)}).checkVisibility()"


def opened(browser: Page, url: str, width: int = 1280, height: int = 900, scheme: str = "light") -> Page:
    browser.look(width, height, scheme)
    browser.open("about:blank")
    browser.errors.clear()
    browser.open(url)
    return browser


def shown(tab: Page, name: str) -> None:
    """Wait for the verdict on this picture."""
    tab.wait(f"{READY} && {text('#name')} === {json.dumps(name)}")


def press(tab: Page, key: str, code: int, typed: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        more = {"text": typed} if typed and kind == "keyDown" else {}
        tab.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)
