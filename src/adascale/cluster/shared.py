"""What the machines of a job must share: the files of the images, and the folder of what is made of them."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from adascale.core.errors import InputError
from adascale.extraction.shard_cache import ShardCache
from adascale.images.image_set import ImageSet
from adascale.storage.remote import PlaceError

PATIENCE_SECONDS = 60.0  # a network disk may show a new file that late


def example_of(images: ImageSet | None) -> Path | None:
    """A file among the images that is there; None where they are no files. For where the job is started."""
    return next(filter(os.path.exists, images.paths), None) if images is not None else None


def check_seen(example: Path | None) -> None:
    """Refuse to work where the images are not: each would get a row that says so, as if it were its own fault."""
    if example is not None and not os.path.exists(example):
        raise PlaceError(
            f"{example.absolute()} is there where the job was started, but not on {platform.node()}; all machines must "
            "see the images under the same path, or take them from a URL."
        )


def await_shard(cache: ShardCache, index: int) -> None:
    """Wait until a shard that a worker has written is seen here."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while cache.look_up(index, ())[0] is None:
        if time.monotonic() >= limit:
            raise InputError(
                f"A worker has written to {cache.folder}, but the files are not seen here; all machines must share "
                "this folder: give --cache (fit: -o) on a shared disk, or a URL."
            )
        time.sleep(min(0.5, PATIENCE_SECONDS))
