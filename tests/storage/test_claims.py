"""One output, one writer: a second run is refused, names the first, and changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from adascale import InputError
from adascale.storage.atomic import replacing
from adascale.storage.locks import claimed
from adascale.storage.rows import Journal


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    output = tmp_path / "new" / "s.csv"
    with claimed(output):
        with pytest.raises(InputError, match=rf"s\.csv is being written by another run \(process {os.getpid()}\)"):
            claimed(output).__enter__()
        with claimed(tmp_path / "other.csv"):
            pass
    with claimed(output):
        pass
    assert list(output.parent.iterdir()) == []


def test_a_lock_holds_between_processes_and_ends_with_them(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from adascale.storage.locks import claimed
with claimed(Path({str(tmp_path)!r}) / "s.csv"):
    print("held", flush=True)
    input()
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(InputError, match=rf"process {other.pid}\b"):
        claimed(tmp_path / "s.csv").__enter__()
    other.kill()
    other.communicate()
    assert (tmp_path / ".s.csv.lock").exists()  # left by the kill; it counts for nothing
    with claimed(tmp_path / "s.csv"):
        pass


def test_many_threads_never_hold_it_together(tmp_path: Path) -> None:
    inside, most, taken, guard = 0, 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most, taken
        for _ in range(50):
            try:
                with claimed(tmp_path / "s.csv"):
                    with guard:
                        inside, taken = inside + 1, taken + 1
                        most = max(most, inside)
                    with guard:
                        inside -= 1
            except InputError:
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == 1
    assert taken >= 8


def test_lost_rows_are_noticed_before_the_output_is_written(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("old")
    journal = Journal(tmp_path / "s.csv", "key")
    journal.append([{"image": "a"}, {"image": "b"}])
    with pytest.raises(InputError, match=r"s\.csv\.part has 2 rows for 3 images"):
        journal.finish(["image"], 3)
    assert (tmp_path / "s.csv").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.csv", "s.csv.part"]


@pytest.mark.parametrize(("rows", "kept"), [(0, 0), (2, 0), (3, 3), (5, 3), (7, 7)])
def test_a_run_resumes_where_a_batch_begins(rows: int, kept: int, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "s.jsonl", "key")
    journal.append([{"image": str(i)} for i in range(rows)])
    assert journal.done(batch_size=3, total=7) == kept
    assert [row["image"] for row in journal.rows()] == [str(i) for i in range(kept)]


def test_a_full_disk_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(InputError, match=r"out\.csv cannot be written: No space left"), claimed(tmp_path / "out.csv"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", [False, True])
def test_what_a_killed_run_left_is_removed_and_what_another_writes_is_not(folder: bool, tmp_path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from adascale.storage.atomic import replacing
with replacing(Path({str(tmp_path)!r}) / "s.csv"):
    os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    (left,) = tmp_path.iterdir()
    with replacing(tmp_path / "s.csv") as writing:
        writing.write_text("x")
        with claimed(tmp_path if folder else tmp_path / "s.csv", folder):
            assert not left.exists()
            assert writing.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["s.csv"]
