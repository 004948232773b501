"""Tars at s3:// in, shards at s3:// out, on a real server; the driver is killed, and the same command goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shell import fit, inside, trusting
from tests.stores import contents, s3_server, tar_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with s3_server() as system:
        yield system


def parts(s3: Any) -> dict[str, str]:
    """The parts that are there, with what changes when one is written again."""
    s3.invalidate_cache()
    found = s3.find("bucket/parts", detail=True)
    return {name: str(info["LastModified"]) for name, info in found.items() if "part-" in name}


def test_a_job_on_s3_is_killed_and_resumed(s3: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = fit(place, monkeypatch, "--method", "scale")
    images = contents(place / "id")
    for first in range(0, 30, 10):
        some = {name: images[name] for name in list(images)[first : first + 10]}
        s3.pipe_file(f"bucket/tars/{first:02d}.tar", tar_of(some))
    source = ("score", "s3://bucket/tars", "-d", detector, "--batch-size", "5", "-o")
    command = (*source, "s3://bucket/parts", "--on", "local", "--workers", "1")
    slow = {**os.environ, "SLOW": "1"}
    process = subprocess.Popen([sys.executable, "-m", "adascale", *trusting(command)], cwd=place, env=slow)
    while not parts(s3):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    done = parts(s3)
    assert len(done) < 3
    time.sleep(2.5)  # the worker, left alone, ends its shard; the store has no part of one in any case
    done = parts(s3)
    assert not s3.exists("bucket/parts/manifest.json")

    assert inside(monkeypatch, *command) == 0
    assert {name: parts(s3)[name] for name in done} == done
    assert len(parts(s3)) == 3
    assert inside(monkeypatch, "merge", "s3://bucket/parts", "-o", "s3://bucket/all.csv") == 0
    assert inside(monkeypatch, *source, "s3://bucket/one.csv") == 0
    assert s3.cat_file("bucket/all.csv") == s3.cat_file("bucket/one.csv")
