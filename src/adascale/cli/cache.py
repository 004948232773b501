"""``adascale cache``: what the cache of activations holds, how large it is, and what can go. PyTorch is not needed."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from adascale.cli.commands import CacheCommand
from adascale.cli.console import plain_table, say
from adascale.core.errors import InputError
from adascale.core.folders import cache_folder
from adascale.core.suggestions import meant
from adascale.storage import entries
from adascale.storage.entries import CacheEntry, shown_size, size_limit
from adascale.storage.remote import Place, Url


def cache(given: CacheCommand) -> None:
    """List the entries, say how large they are, or remove some of them."""
    folder = given.cache or cache_folder()
    found = entries.entries(folder)
    if given.action != "clean":
        chosen = _chosen(found, given)
        (_list if given.action == "list" else _size)(folder, chosen, given.as_json)
        return
    named = given.suite is not None or given.age is not None
    if named == given.everything:
        advice = "say what: --older-than 30d, --suite NAME, or --all"
        raise InputError(f"cache clean {'--all beside other options' if named else 'without an option'}; {advice}.")
    chosen = _chosen(found, given)
    if given.suite is not None:
        shared = [entry for entry in chosen if entry.every("suite") != [given.suite]]
        chosen = [entry for entry in chosen if entry not in shared]
        if shared:
            say(f"kept {len(shared)} entries that other suites use too")
    removed = entries.remove(folder, chosen)
    if len(removed) < len(chosen):
        say(f"kept {len(chosen) - len(removed)} entries that running jobs use")
    left = entries.total(entries.entries(folder))
    if given.as_json:
        record = {"folder": str(folder), "removed": [entry.path.name for entry in removed]}
        print(json.dumps({**record, "freed": entries.total(removed), "size": left}))
    else:
        freed = shown_size(entries.total(removed))
        print(f"removed {len(removed)} of {len(found)} entries, {freed}; {shown_size(left)} are left in {folder}")


def settle(folder: Place, limit: str | None) -> None:
    """After a run: remove what was used least recently beyond the limit, and say how much is kept.

    A cache at a URL is left alone: who else uses it cannot be known here.
    """
    if isinstance(folder, Url):
        return
    most = size_limit(limit)
    if removed := entries.trim(folder, most):
        say(f"removed {len(removed)} cached sets ({shown_size(entries.total(removed))}), those used least recently")
    kept, bound = shown_size(entries.total(entries.entries(folder))), "" if most is None else shown_size(most)
    say(f"activations: {kept} are kept in {folder}" + (f" (limit {bound}; see adascale cache)" if bound else ""))


def _chosen(found: Sequence[CacheEntry], given: CacheCommand) -> list[CacheEntry]:
    """The entries of the suite, and not used for as long as asked."""
    suites = sorted({suite for entry in found for suite in entry.every("suite")})
    if given.suite is not None and given.suite not in suites:
        rest = f" There are {', '.join(suites)}." if suites else " The cache is empty."
        raise InputError(f"The cache has nothing of the suite {given.suite}{meant(given.suite, suites)}{rest}")
    before = time.time() - (given.age or 0)
    return [
        entry
        for entry in found
        if (given.suite is None or given.suite in entry.every("suite")) and (given.age is None or entry.used < before)
    ]


def _list(folder: Path, found: Sequence[CacheEntry], as_json: bool) -> None:
    if as_json:
        record = {"folder": str(folder), "limit": size_limit(), "size": entries.total(found)}
        print(json.dumps({**record, "entries": [entry.record() for entry in found]}))
        return
    table = plain_table("suite", "network", "set", "size", "last used", "")
    for entry in found:
        names = (", ".join(entry.every(field)) for field in ("suite", "network", "set"))
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        table.add_row(*names, shown_size(entry.size), used, "in use" if entry.in_use else "")
    Console(highlight=False).print(table)
    _size(folder, found, as_json)


def _size(folder: Path, found: Sequence[CacheEntry], as_json: bool) -> None:
    limit = size_limit()
    if as_json:
        record = {"folder": str(folder), "limit": limit, "size": entries.total(found), "entries": len(found)}
        print(json.dumps(record))
    else:
        bound = "no limit" if limit is None else f"limit {shown_size(limit)}"
        print(f"{len(found)} entries, {shown_size(entries.total(found))} in {folder} ({bound})")
