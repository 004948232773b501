"""Locks on files that hold between processes and end with the process that has them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_BYTE = 2**30  # where Windows locks: behind any content, which can then still be read


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process or thread holds this lock, and hold it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        _lock(file, wait=True)
        yield  # closing the file gives the lock back


def try_lock(file: IO[bytes]) -> bool:
    """Take the lock of an open file until it is closed; False if another holder has it."""
    try:
        _lock(file, wait=False)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _lock(file: IO[bytes], wait: bool) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(_BYTE)
        while True:
            try:
                return msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            except OSError:  # LK_LOCK gives up after ten seconds
                if not wait:
                    raise BlockingIOError(os.strerror(11)) from None
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
