"""Debian's chromium without a window, for the tests of pages."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=4000""".split()
# A window is at least 500 pixels wide; a frame in it may be as narrow as a phone. It tells what its page found.
FRAME = """<!DOCTYPE html><pre id="answer"></pre><script>
addEventListener("message", (event) => { document.getElementById("answer").textContent = event.data; });
</script><iframe src="page.html" style="border: 0; width: WIDTHpx; height: HEIGHTpx"></iframe>"""
WATCH = """<script>
const seen = [];
addEventListener("error", (event) => seen.push(String(event.message || event.target.outerHTML)), true);
addEventListener("securitypolicyviolation", (event) => seen.push(event.violatedDirective));
console.error = (...words) => seen.push(words.join(" "));
</script>"""


def ask(page: str, script: str, folder: Path, width: int = 1280, height: int = 900) -> Any:
    """Run the script in the page, at this width, and return what its function ``look`` returns, and the errors seen."""
    tail = f"""<script>{script}
parent.postMessage(JSON.stringify({{answer: look(), errors: seen, width: innerWidth}}), "*");</script></body>"""
    folder.joinpath("page.html").write_text(page.replace("<head>", f"<head>{WATCH}", 1).replace("</body>", tail))
    folder.joinpath("frame.html").write_text(FRAME.replace("WIDTH", str(width)).replace("HEIGHT", str(height)))
    dom = _run(folder, f"--window-size={width + 40},{height}", "--dump-dom", folder.joinpath("frame.html").as_uri())
    found = re.search(r'<pre id="answer">(.+?)</pre>', dom, re.DOTALL)
    assert found, "the page did not answer"
    return json.loads(html.unescape(found[1]))


def screenshot(page: Path, picture: Path, *flags: str, width: int = 1280, height: int = 900) -> None:
    """What one sees first."""
    _run(picture.parent, f"--window-size={width},{height}", f"--screenshot={picture}", *flags, page.as_uri())


def _run(folder: Path, *arguments: str) -> str:
    assert BROWSER is not None
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'browser'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
