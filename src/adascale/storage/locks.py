"""Locks on files that hold between processes and end with the process that has them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from adascale.core.errors import InputError
from adascale.storage.atomic import remove_leftovers, unwritable
from adascale.storage.remote import Place, Url, unfinished

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


@contextmanager
def claimed(output: Place, folder: bool = False) -> Iterator[None]:
    """Only one process, or thread, at a time writes this output; a second one is refused and told who does.

    The lock is a file beside the output, or in it if it is a ``folder``. It is removed at the end; one that a killed
    process left counts for nothing, and the temporary files that it left are removed. Where a disk has no locks,
    nothing is refused. The lock of a URL is on this machine, so it does not keep two machines apart.
    """
    place = _place(output, folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    file = _claim(output, place)
    try:
        if not isinstance(output, Url):
            remove_leftovers(*((output,) if folder else (output.parent, output.name)))
        yield
    finally:
        with suppress(OSError):
            place.unlink()
        file.close()


def _place(output: Place, folder: bool) -> Path:
    if isinstance(output, Url):
        return unfinished(output, ".lock")
    return output / ".lock" if folder else output.with_name(f".{output.name}.lock")


def _claim(output: Place, place: Path) -> IO[bytes]:
    """The locked file, with the number of this process in it."""
    while True:
        file = open(place, "a+b")  # noqa: SIM115 (held by the caller)
        try:
            free = try_lock(file)
        except OSError:  # a disk without locks
            return file
        if not free:
            file.seek(0)
            owner = file.read(20).decode() or "unknown"
            file.close()
            raise InputError(
                f"{output} is being written by another run (process {owner}); wait until it ends, or choose another "
                "output."
            )
        if _is_at(file, place):
            _sign(file, output, place)
            return file
        file.close()  # the run that had it has just removed it


def _sign(file: IO[bytes], output: Place, place: Path) -> None:
    """Write the number of this process into the lock. Where that cannot be, on a full disk, no lock is left."""
    try:
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), str(os.getpid()).encode())
    except OSError as error:
        place.unlink(missing_ok=True)
        file.close()
        raise unwritable(output, error) from error


def _is_at(file: IO[bytes], place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), place.stat())
    except FileNotFoundError:
        return False
