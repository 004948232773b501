"""A service in a thread of the test, on loopback."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from adascale.service.app import Service
from adascale.service.limits import Limits
from adascale.service.running import bound, run


class Server:
    """A service in a thread, and its address."""

    def __init__(self, service: Service) -> None:
        self.service, self._socket = service, bound("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/"
        self._thread = threading.Thread(target=run, args=(service, self._socket), daemon=True)
        self._thread.start()

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> Any:
        request = urllib.request.Request(self.url + path, body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def score(self, file: Path, detector: str = "small") -> dict[str, Any]:
        path = f"v1/score?detector={detector}&explain=true"
        found: dict[str, Any] = self.ask(path, file.read_bytes(), **{"Content-Type": "image/png"})[0]
        return found

    def stop(self) -> None:
        self.service.state.drain()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def served(*given: Any, **options: Any) -> Iterator[Server]:
    server = Server(Service(*given, Limits(drain_s=0), **options))
    try:
        yield server
    finally:
        server.stop()
