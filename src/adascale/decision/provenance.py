"""When a detector was fitted, and on what: a few words for people that are kept in the detector file."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from torch import Tensor


def fitting_record(images: int, source: str) -> dict[str, Any]:
    """The time in UTC, the number of images that were read, and where they came from.

    Where SOURCE_DATE_EPOCH is set (seconds since 1970, as reproducible builds use it), it is the time that is
    recorded, so that the same fit gives the same file.
    """
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(fixed), timezone.utc) if fixed.isdecimal() else datetime.now(timezone.utc)
    return {"date": now.strftime("%Y-%m-%d %H:%M:%S UTC"), "images": images, "source": source}


def source_in_words(images: Any) -> str:
    """Images as they were given: a path as it is, anything else by its type, a tensor with its shape."""
    if isinstance(images, str | os.PathLike):
        return os.fspath(images)
    if isinstance(images, Tensor):
        return f"a tensor {tuple(images.shape)}"
    return f"a {type(images).__name__}"
