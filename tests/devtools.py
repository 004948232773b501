"""A page in Debian's chromium that a test drives: DevTools commands over a pipe, which needs no package."""

from __future__ import annotations

import base64
import io
import json
import os
import select
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser import BROWSER, FLAGS

_PATIENCE = 120.0  # seconds until a test gives up; machines may be busy
_LIVE = [flag for flag in FLAGS if "virtual-time" not in flag]  # real time: a page may compile and compute


class Page:
    """One tab. errors: what the console, exceptions and failed requests said."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._rest, self._last = read, write, b"", 0
        self._session: str | None = None
        self.errors: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a DevTools command."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._last:
            self._listen(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        found = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> Any:
        """The value of an expression as soon as it is true."""
        end = time.monotonic() + _PATIENCE
        while not (value := self.run(condition)):
            assert time.monotonic() < end, f"not true after {_PATIENCE:.0f} s: {condition}; {self.errors}"
            time.sleep(0.05)
        return value

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def look(self, width: int, height: int, scheme: str = "light") -> None:
        """The size of the window, and light or dark."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def choose(self, selector: str, *files: Path) -> None:
        """Choose files in a file input."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def drop(self, *files: Path, x: int = 200, y: int = 200) -> None:
        """Drag files over the page and let them go."""
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.send("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def screenshot(self, picture: Path) -> None:
        """The whole page."""
        found = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        picture.write_bytes(base64.b64decode(found["data"]))

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._read], [], [], _PATIENCE)[0], "the browser does not answer"
            part = os.read(self._read, 2**20)
            assert part, "the browser has ended"
            self._rest += part
        first, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        return message

    def _listen(self, event: dict[str, Any]) -> None:
        name, given = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(given["exceptionDetails"]))
        elif name == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(given["args"]))
        elif name == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.errors.append(json.dumps(given["entry"]))


@contextmanager
def page(folder: Path) -> Iterator[Page]:
    """A tab of a browser that ends with the block. folder: for its profile."""
    assert BROWSER is not None
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    # The browser reads its descriptor 3 and writes to 4. The shell puts ours there, whatever their numbers are.
    shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
    command = [BROWSER, *_LIVE, "--remote-debugging-pipe", f"--user-data-dir={folder / 'browser'}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", shell, "bash", *command],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(read, write)
    finally:
        os.close(write)  # the browser ends when its pipe does
        os.close(read)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def fetched_axe(folder: Path) -> str:
    """The script of axe-core, which looks for barriers, from npm's registry; without it the test is skipped."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on PATH, which axe-core comes with")
    command = [npm, "pack", "axe-core@4", "--pack-destination", str(folder), "--silent"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=folder)
    if done.returncode:
        pytest.skip(f"axe-core cannot be fetched: {done.stderr.strip()[:200]}")
    with tarfile.open(next(folder.glob("*.tgz"))) as files:
        script = files.extractfile("package/axe.min.js")
        assert script is not None
        return io.TextIOWrapper(script, "utf8").read()


def barriers(tab: Page, axe: str) -> list[list[str]]:
    """What axe-core finds on the open page: impact, rule and the first places of each violation."""
    tab.run(f"window.axe ? 0 : (() => {{ {axe} }})()")
    script = """axe.run(document, {resultTypes: ["violations"], preload: false}).then((found) => found.violations
      .map((one) => [one.impact, one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120)).join(" | ")]))"""
    found: list[list[str]] = tab.run(script)
    return found
