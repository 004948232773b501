"""The folder for everything that can be computed again."""

from __future__ import annotations

import os
from pathlib import Path

from adascale.core.errors import InputError


def cache_folder() -> Path:
    """Where activations are kept unless the caller names a folder: ADASCALE_CACHE, else the user's cache folder."""
    if given := os.environ.get("ADASCALE_CACHE"):
        if "://" in given:
            raise InputError(
                f"ADASCALE_CACHE={given}; it names a local folder. bench, tune and study take --cache URL."
            )
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "adascale"
