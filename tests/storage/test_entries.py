"""The cache of activations as a whole: the limit, what is in use, and two processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from adascale import InputError
from adascale.storage import entries
from adascale.storage.entries import CacheEntry, remove, shown_size, size_limit, trim, use

OTHER = """
import sys, time
from pathlib import Path
from adascale.storage.entries import use
class User: pass
user = User()
use(Path(sys.argv[1]), sys.argv[2], {"suite": "theirs"}, user)
print("ready", flush=True)
time.sleep(60)
"""


class User:
    """Something that needs an entry as long as it lives."""


def entry(cache: Path, digit: str, size: int, days: float, suite: str | None = "mine") -> Path:
    """An entry that was used last so many days ago."""
    folder = cache / (32 * digit)
    folder.mkdir(parents=True)
    (folder / "000000.safetensors").write_bytes(bytes(size))
    if suite is not None:
        use(cache, folder.name, {"suite": suite, "network": "net", "set": "id"}, User())
    for file in folder.iterdir():
        os.utime(file, (time.time() - 86400 * days,) * 2)
    return folder


def names(found: list[CacheEntry]) -> str:
    return "".join(one.path.name[0] for one in found)


def shards(cache: Path) -> str:
    return "".join(sorted(file.parent.name[0] for file in cache.glob("*/*.safetensors")))


def test_what_was_used_least_recently_goes_first(tmp_path: Path) -> None:
    for digit, days in (("a", 1), ("b", 30), ("c", 2), ("d", 20)):
        entry(tmp_path, digit, 10_000, days)
    assert names(entries.entries(tmp_path)) == "acdb"
    assert trim(tmp_path, 10**6) == []
    assert trim(tmp_path, None) == []
    assert names(trim(tmp_path, 21_000)) == "bd"
    assert shards(tmp_path) == "ac"
    use(tmp_path, 32 * "c", {"suite": "mine", "network": "net", "set": "id"}, User())
    assert names(entries.entries(tmp_path)) == "ca"


def test_what_is_in_use_is_kept(tmp_path: Path) -> None:
    entry(tmp_path, "a", 10_000, 1)
    entry(tmp_path, "b", 10_000, 30)
    user: Any = User()
    use(tmp_path, 32 * "b", {"suite": "other"}, user)
    os.utime(tmp_path / (32 * "b") / "about.json", (0, 0))
    assert names(trim(tmp_path, 0)) == "a"
    (left,) = entries.entries(tmp_path)
    assert (left.in_use, left.every("suite")) == (True, ["mine", "other"])
    del user
    assert names(trim(tmp_path, 0)) == "b"


def test_another_process_keeps_what_it_uses_until_it_ends(tmp_path: Path) -> None:
    folder = entry(tmp_path, "a", 10_000, 9)
    assert not entries.entries(tmp_path)[0].in_use
    command = [sys.executable, "-c", OTHER, str(tmp_path), folder.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            assert remove(tmp_path, entries.entries(tmp_path)) == []
            assert shards(tmp_path) == "a"
        finally:
            process.kill()
    assert names(remove(tmp_path, entries.entries(tmp_path))) == "a"
    assert not folder.exists()
    assert list((tmp_path / ".running").iterdir()) == []


def test_two_processes_that_clean_at_once_share_the_work(tmp_path: Path) -> None:
    for digit in "0123456789abcdef":
        entry(tmp_path, digit, 1000, 5)
    assert len(entries.entries(tmp_path)) == 16
    program = "import sys; from pathlib import Path; from adascale.storage.entries import trim; "
    program += "print(len(trim(Path(sys.argv[1]), 0)))"
    command = [sys.executable, "-c", program, str(tmp_path)]
    cleaners = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sum(int(cleaner.communicate()[0]) for cleaner in cleaners) == 16
    assert shards(tmp_path) == ""


def test_only_entries_are_touched(tmp_path: Path) -> None:
    old = entry(tmp_path, "a", 1000, 5, suite=None)
    for place in ("precisions", "Documents", 31 * "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "file.safetensors").write_bytes(b"x")
    (found,) = entries.entries(tmp_path)
    assert (found.path, found.every("suite"), found.size) == (old, ["unknown"], 1000)
    foreign = CacheEntry(tmp_path / "Documents", (), 1, 1, 0.0, False)
    assert names(remove(tmp_path, [foreign, found])) == "a"
    assert len(list(tmp_path.glob("*/file.safetensors"))) == 3
    assert entries.entries(tmp_path / "nowhere") == []


def test_a_damaged_record_is_an_unknown_entry(tmp_path: Path) -> None:
    folder = entry(tmp_path, "a", 1000, 5)
    (folder / "about.json").write_text("{")
    assert entries.entries(tmp_path)[0].every("suite") == ["unknown"]


@pytest.mark.parametrize(
    ("text", "size"), [("20GB", 20 * 10**9), ("1.5 kB", 1500), ("2GiB", 2**31), ("512", 512), ("none", None)]
)
def test_limits(text: str, size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert size_limit(text) == size
    monkeypatch.setenv("ADASCALE_CACHE_LIMIT", text)
    assert size_limit() == size


def test_a_wrong_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="--cache-limit lots: give a size such as 20GB"):
        size_limit("lots")
    monkeypatch.setenv("ADASCALE_CACHE_LIMIT", "-3")
    with pytest.raises(InputError, match="ADASCALE_CACHE_LIMIT -3: give a size"):
        size_limit()


def test_sizes_for_people() -> None:
    assert [shown_size(n) for n in (0, 999, 1500, 2_340_000, 5 * 10**9)] == [
        *("0 B", "999 B", "1.5 KB", "2.3 MB", "5.0 GB")
    ]
