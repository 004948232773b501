"""Which entries of a cache running processes use, so that no one removes them.

Every process that uses a cache keeps one file in ``CACHE/.running``, with the names of its entries, and holds the lock
of that file. The lock ends with the process, however it ends; a file that can be locked is left over and counts for
nothing. Whoever registers a use or removes an entry holds ``CACHE/.lock`` meanwhile. A process may name entries
longer than it needs them, never shorter.
"""

from __future__ import annotations

import atexit
import os
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO
from weakref import WeakSet

from adascale.storage.locks import try_lock

LOCK = ".lock"
_RUNNING = ".running"


class _Lease:
    """The file of this process in one cache. users: for each entry the objects that need it, as long as they live."""

    def __init__(self, cache: Path) -> None:
        self.process = os.getpid()
        self.path = cache / _RUNNING / f"{self.process}-{uuid.uuid4().hex[:8]}"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file: IO[bytes] = open(self.path, "w+b")  # noqa: SIM115 (held as long as the process uses the cache)
        self.users: dict[str, WeakSet[object]] = {}
        try_lock(self.file)

    def write(self) -> None:
        """Write the names of the entries that are still needed."""
        self.users = {name: users for name, users in self.users.items() if users}
        self.file.seek(0)
        self.file.truncate()
        self.file.write("\n".join(self.users).encode())
        self.file.flush()

    def close(self) -> None:
        self.file.close()
        self.path.unlink(missing_ok=True)


_leases: dict[Path, _Lease] = {}
_guard = threading.Lock()


@atexit.register
def _close_all() -> None:
    """Leave nothing behind when this process ends as it should; a copy of it (fork) has nothing to remove."""
    for lease in _leases.values():
        if lease.process == os.getpid():
            lease.close()


def _after_fork() -> None:
    """The thread that held the guard is not in the child."""
    global _guard
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def hold(cache: Path, name: str, user: object) -> None:
    """Register that this object uses an entry, as long as it lives. The caller holds the lock of the cache."""
    with _guard:
        if cache not in _leases:
            _leases[cache] = _Lease(cache)
        lease = _leases[cache]
        lease.users.setdefault(name, WeakSet()).add(user)
        lease.write()


def held(cache: Path) -> set[str]:
    """The names of the entries in use, by any process. The caller holds the lock of the cache."""
    with _guard:
        for place, lease in list(_leases.items()):
            if not any(lease.users.values()):
                _leases.pop(place).close()
            elif place == cache:
                lease.write()
    names: set[str] = set()
    for path in (cache / _RUNNING).glob("*"):
        with suppress(OSError), open(path, "r+b") as file:
            if try_lock(file):
                path.unlink(missing_ok=True)
            else:
                names |= set(file.read().decode().split())
    return names
