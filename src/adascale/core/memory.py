"""How much memory there is."""

from __future__ import annotations

import os
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def memory_bytes() -> int:
    """The memory of this machine, or of the container that this process runs in; 8 GiB where it does not tell."""
    found = [_machine()]
    for limit in map(Path, _LIMITS):
        try:
            found.append(int(limit.read_text("ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(found)


def _machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no such call
        return 2**33
