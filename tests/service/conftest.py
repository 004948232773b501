"""One service for all tests that need nothing special."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from adascale import OODDetector
from tests.service.serving import detector, running


@pytest.fixture(scope="session")
def fitted() -> OODDetector:
    return detector()


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def client(fitted: OODDetector, state: Path) -> Iterator[httpx.Client]:
    with running({"first": fitted, "second": detector("mls")}, state) as found:
        yield found
