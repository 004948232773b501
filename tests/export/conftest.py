"""A detector that is exported."""

from __future__ import annotations

import pytest

from adascale import OODDetector
from tests.export.fitted import fitted


@pytest.fixture(scope="module")
def detector() -> OODDetector:
    return fitted(classes=["a", "b", "c", "d", "e"])
