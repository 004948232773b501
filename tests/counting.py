"""Counts of work that should be done once: hashes of the network, checksums of files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from adascale.network.classifier import Classifier
from adascale.storage import tensors


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts that grow while the patch lasts: fingerprint and code (of networks), checksum and opened (of files)."""
    counts: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            if name == "opened":
                counts[Path(args[0]).name] += 1
            return function(*args, **kwargs)

        return call

    for name in ("fingerprint", "code"):
        monkeypatch.setattr(Classifier, name, counting(name, getattr(Classifier, name)))
    monkeypatch.setattr(tensors, "checksum", counting("checksum", tensors.checksum))
    monkeypatch.setattr("adascale.storage.tensors.safe_open", counting("opened", safe_open))
    return counts
