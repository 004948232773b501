"""A running service for tests: real HTTP on a free port of this machine."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from torch import Tensor

from adascale import OODDetector
from adascale.service.app import Service
from adascale.service.limits import Limits
from adascale.service.running import bound, run
from tests.conftest import SmallNet, seeded
from tests.images.pictures import RGB, picture

LET_THROUGH = threading.Event()  # networks of the kind `Waiting` stop here while it is not set
LET_THROUGH.set()


class Waiting(SmallNet):
    """A network whose passes wait for `LET_THROUGH`."""

    def forward(self, x: Tensor) -> Any:
        LET_THROUGH.wait(30)
        return super().forward(x)


def png(seed: int = 0, **size: int) -> bytes:
    file = io.BytesIO()
    picture(seed=seed, **size).save(file, "PNG")
    return file.getvalue()


def detector(method: str = "combined", kind: type[SmallNet] = Waiting, **options: Any) -> OODDetector:
    made = OODDetector(seeded(kind), method, preprocess=RGB, classes=list("abcde"), **options)
    return made.fit([picture(seed=i) for i in range(40)], tune=False)


@contextmanager
def running(
    detectors: dict[str, Any], state: Path | None = None, token: str | None = None, **limits: Any
) -> Iterator[Any]:
    """A client of a service that runs in a thread of this process."""
    service = Service(detectors, Limits(**{"drain_s": 0.0, **limits}), state=state, token=token)
    listening = bound("127.0.0.1", 0)
    port = listening.getsockname()[1]
    thread = threading.Thread(target=run, args=(service, listening))
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            wait_until_ready(client)
            yield client
    finally:
        LET_THROUGH.set()
        service.state.drain()
        thread.join(30)
        assert not thread.is_alive()


def wait_until_ready(client: httpx.Client, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if client.get("/v2/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("the service did not become ready")


def score(client: httpx.Client, data: bytes, path: str = "/v1/score", **more: Any) -> httpx.Response:
    return client.post(path, content=data, headers={"Content-Type": "image/png"}, **more)


def together(calls: list[Any]) -> list[Any]:
    """The results of calls that are made at the same time."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def metric(client: httpx.Client, line: str) -> float:
    """The value of a line of /metrics."""
    found = re.search(rf"^{re.escape(line)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def talk(client: httpx.Client, data: bytes, seconds: float = 30) -> bytes:
    """What the service answers to these bytes, sent as they are, until it closes the connection."""
    port = client.base_url.port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as line:
        answer = b""
        try:
            line.sendall(data)
            while part := line.recv(65536):
                answer += part
        except ConnectionError:
            pass
        return answer


class Process:
    """``adascale serve`` in a process of its own."""

    def __init__(self, *arguments: Any, **environment: str) -> None:
        command = [sys.executable, "-m", "adascale", "serve", *map(str, arguments), "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
        self.lines: list[str] = []
        url = self._url()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.client = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def _url(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if '"listening"' in line:
                url: str = json.loads(line)["url"]
                return url
        raise AssertionError("".join(self.lines))

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: Any) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
