"""The cache of activations as a whole: what it holds, what is in use, and what can be removed. PyTorch is not needed.

An entry is a folder named by 32 hexadecimal digits, with the activations of one image set by one network. Beside them
``about.json`` says for which suites, networks and sets they were used; its time is that of the last use.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adascale.core.errors import InputError
from adascale.storage.atomic import write_text
from adascale.storage.leases import LOCK, held, hold
from adascale.storage.locks import locked
from adascale.storage.remote import Place, Url

ABOUT = "about.json"
UNKNOWN = "unknown"
LIMIT_VARIABLE, DEFAULT_LIMIT = "ADASCALE_CACHE_LIMIT", "50GB"
_FORMAT = {"format": "adascale-activations", "format_version": 1}
_NAME, _REMOVED = re.compile(r"[0-9a-f]{32}"), ".removed-"
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {unit[0] + "i" + unit[1]: 2 ** (10 * power) for power, unit in enumerate(list(_UNITS)[1:], 1)}


@dataclass(frozen=True)
class CacheEntry:
    """An entry of a cache. uses: ``suite, network, set, images`` of every use; used: the time of the last one."""

    path: Path
    uses: tuple[Mapping[str, Any], ...]
    size: int
    files: int
    used: float
    in_use: bool

    def every(self, field: str) -> list[str]:
        """What its uses have in this field, each once; ``unknown`` for entries of versions that kept no record."""
        return list(dict.fromkeys(str(use.get(field, UNKNOWN)) for use in self.uses)) or [UNKNOWN]

    def record(self) -> dict[str, Any]:
        """The entry as JSON takes it."""
        names = {f"{field}s": self.every(field) for field in ("suite", "network", "set")}
        used = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.used))
        facts = {"size": self.size, "files": self.files, "used": used, "in_use": self.in_use}
        return {"key": self.path.name, **names, **facts}


def use(cache: Place, name: str, about: Mapping[str, Any], user: object) -> None:
    """Register that ``user`` needs an entry as long as it lives, and what for.

    A cache that cannot be written, such as one on a read-only disk, can be used without; one at a URL keeps no record,
    and no one cleans it.
    """
    if isinstance(cache, Url):
        return
    cache = cache.absolute()
    with suppress(OSError), locked(cache / LOCK):
        hold(cache, name, user)
        path = cache / name / ABOUT
        uses = _uses(path)
        if dict(about) in uses:
            os.utime(path)
        else:
            write_text(path, json.dumps({**_FORMAT, "uses": [*uses, about]}, indent=1) + "\n")


def entries(cache: Path) -> list[CacheEntry]:
    """Every entry of a cache, the one used last first. Other files and folders are none."""
    cache = cache.absolute()
    if not cache.is_dir():
        return []
    used: set[str] = set()
    with suppress(OSError), locked(cache / LOCK):
        used = held(cache)
    return _found(cache, used)


def remove(cache: Path, chosen: Iterable[CacheEntry]) -> list[CacheEntry]:
    """Remove these entries except those in use; returns what was removed."""
    cache, removed, places = cache.absolute(), [], []
    if not cache.is_dir():
        return []
    try:
        with locked(cache / LOCK):
            used = held(cache)
            for entry in chosen:
                if entry.path.name not in used and _NAME.fullmatch(entry.path.name) and entry.path.is_dir():
                    places.append(cache / f"{_REMOVED}{uuid.uuid4().hex[:8]}")
                    entry.path.rename(places[-1])  # at once, so that no other process sees half of it
                    removed.append(entry)
    except OSError as error:
        raise InputError(f"The cache {cache} cannot be changed: {error}.") from error
    for place in {*places, *cache.glob(f"{_REMOVED}*")}:  # also what a killed process left
        shutil.rmtree(place, ignore_errors=True)
    return removed


def trim(cache: Path, limit: int | None) -> list[CacheEntry]:
    """Remove what was used least recently until at most ``limit`` bytes are left; returns what was removed."""
    found = entries(cache)
    left, chosen = sum(entry.size for entry in found), []
    for entry in reversed(found):
        if limit is None or left <= limit:
            break
        if not entry.in_use:
            chosen.append(entry)
            left -= entry.size
    return remove(cache, chosen) if chosen else []


def total(found: Sequence[CacheEntry]) -> int:
    return sum(entry.size for entry in found)


def size_limit(text: str | None = None) -> int | None:
    """The most bytes that a cache may keep: this text, else ADASCALE_CACHE_LIMIT, else 50 GB; None for no limit.

    For example:

        >>> size_limit("20GB"), size_limit("none")
        (20000000000, None)
    """
    given = text or os.environ.get(LIMIT_VARIABLE) or DEFAULT_LIMIT
    if given.lower() == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([a-zA-Z]*)", given.strip())
    units = {unit.lower(): size for unit, size in _UNITS.items()} | {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
    if match is None or match[2].lower() not in units:
        name = "--cache-limit" if text else LIMIT_VARIABLE
        raise InputError(f"{name} {given}: give a size such as 20GB or 500MB, or none for no limit.")
    return int(float(match[1]) * units[match[2].lower()])


def shown_size(size: int) -> str:
    """A number of bytes for people: ``1.2 GB``."""
    unit, step = next(((u, s) for u, s in reversed(list(_UNITS.items())[:5]) if size >= s), ("B", 1))
    return f"{size / step:.1f} {unit}" if step > 1 else f"{size} {unit}"


def _found(cache: Path, used: set[str]) -> list[CacheEntry]:
    found = []
    for folder in cache.iterdir():
        if _NAME.fullmatch(folder.name):
            with suppress(OSError):  # another process may remove it meanwhile
                found.append(_entry(folder, folder.name in used))
    return sorted(found, key=lambda entry: -entry.used)


def _entry(folder: Path, in_use: bool) -> CacheEntry:
    stats = {file.name: file.stat() for file in os.scandir(folder)}
    times = [stats[ABOUT].st_mtime] if ABOUT in stats else [stat.st_mtime for stat in stats.values()]
    size = sum(stat.st_size for stat in stats.values())
    return CacheEntry(folder, tuple(_uses(folder / ABOUT)), size, len(stats), max(times, default=0.0), in_use)


def _uses(path: Path) -> list[dict[str, Any]]:
    try:
        return [dict(use) for use in json.loads(path.read_text("utf8"))["uses"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
