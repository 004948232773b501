"""Work that is done once leaves no pool of threads behind; decoding makes none."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from adascale.core.threads import in_passing_thread
from adascale.images.preprocess import Preprocess

linux = pytest.mark.skipif(sys.platform != "linux", reason="the threads of a process are counted in /proc")


@pytest.fixture(autouse=True)
def _several_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def threads() -> int:
    return len(list(Path(f"/proc/{os.getpid()}/task").iterdir()))


def more_threads(work: Callable[[], object]) -> int:
    """How many threads the process has more when the work is done, in its thread."""
    before = threads()
    work()
    return threads() - before


def parallel() -> None:
    torch.ones(2_000_000).exp()


def test_results_and_errors_come_back() -> None:
    assert in_passing_thread(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        in_passing_thread(lambda: 1 / 0)


@linux
def test_nothing_is_left_behind() -> None:
    assert in_passing_thread(lambda: more_threads(parallel)) > 0
    before = threads()
    in_passing_thread(parallel)
    until = time.monotonic() + 20
    while threads() > before and time.monotonic() < until:
        time.sleep(0.01)  # they end on their own
    assert threads() <= before


@linux
def test_decoding_starts_no_pool() -> None:
    preprocess, image = Preprocess(512, 512, mean=(0.5,) * 3, std=(0.25,) * 3), Image.new("RGB", (600, 600))
    assert in_passing_thread(lambda: more_threads(lambda: preprocess.normalised(image))) == 0
