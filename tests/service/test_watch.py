"""The files of a monitor: whatever moment the process ends at, the next one goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from adascale.core.errors import InputError
from adascale.service import watch as module
from adascale.service.watch import Watch

CALIBRATION = torch.linspace(0, 1, 50, dtype=torch.float64)
OPEN: list[Watch] = []
IMAGES = [(0.01 * (7 * i % 100), i % 3, f"{i}.png") for i in range(40)]


@pytest.fixture(autouse=True)
def closed_at_the_end() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def opened(folder: Path) -> Watch:
    OPEN.append(Watch(folder, CALIBRATION, 3))
    return OPEN[-1]


def test_after_every_moment_the_state_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAVED_AFTER", 15)
    whole = opened(tmp_path / "whole")
    broken = tmp_path / "broken"
    opened(broken).close()
    for start in range(0, 40, 4):
        batch = IMAGES[start : start + 4]
        whole.update(batch)
        watch = opened(broken)
        watch.update(batch)
        shutil.copytree(broken, tmp_path / str(start))  # as a killed process leaves it
        watch.close()
        broken = tmp_path / str(start)
    last = opened(broken)
    assert last.summary() == whole.summary()
    assert last.summary()["images"] == 40


def test_an_image_without_a_finite_score_is_kept(tmp_path: Path) -> None:
    first = opened(tmp_path / "a")
    first.update([(None, 1, None), (0.5, None, "b")])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert opened(tmp_path / "b").summary() == first.summary()


def test_a_line_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    first = opened(tmp_path / "a")
    first.update(IMAGES[:3])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (journal,) = (tmp_path / "b").glob("*/journal-0.jsonl")
    journal.write_bytes(journal.read_bytes() + b"[0.5, 1, ")
    second = opened(tmp_path / "b")
    assert second.summary() == first.summary()
    second.update(IMAGES[3:5])
    first.update(IMAGES[3:5])
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    assert opened(tmp_path / "c").summary() == first.summary()


@pytest.mark.parametrize("written", [0, 10])
def test_a_full_disk_costs_nothing_once_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """Neither the lines that could not be written, or only in part, nor those that follow."""

    def full(file: int, lines: bytes) -> int:
        if not written:
            raise OSError(28, "No space left on device")
        return write(file, lines[:written])

    write, first, whole = os.write, opened(tmp_path / "a"), opened(tmp_path / "whole")
    first.update(IMAGES[:5])
    with monkeypatch.context() as context:
        context.setattr("os.write", full)
        first.update(IMAGES[5:8])
    first.update(IMAGES[8:10])
    (journal,) = (tmp_path / "a").glob("*/journal-*.jsonl")
    assert [json.loads(line)[2] for line in journal.read_text().splitlines()] == [
        f"{i}.png" for i in (0, 1, 2, 3, 4, 8, 9)
    ]
    first.save()  # as the service does every 30 seconds
    first.update(IMAGES[10:12])
    whole.update(IMAGES[:12])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert opened(tmp_path / "b").summary() == whole.summary()


def test_another_calibration_is_another_monitor(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.update(IMAGES)
    first.close()
    other = Watch(tmp_path, CALIBRATION + 1, 3)
    assert other.summary()["images"] == 0
    other.close()
    assert opened(tmp_path).summary()["images"] == 40


def test_two_services_do_not_share_a_folder(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(InputError, match="Another service"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_old_files_are_removed(tmp_path: Path) -> None:
    watch = opened(tmp_path)
    for image in IMAGES:
        watch.update([image])
        watch.save()
    watch.close()
    assert len(list(tmp_path.glob("*/*-*"))) == 2
