"""Two Ray nodes on this machine: whatever is killed, every row is there once and is that of one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.images.pictures import picture
from tests.shell import NETWORK, fit, inside

pytestmark = pytest.mark.slow
psutil = pytest.importorskip("psutil")
ray = pytest.importorskip("ray")

IMAGES, SHARD = 2000, 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without CPUs and two nodes with one each, so that a lost node leaves one worker. Their passes are slow
    enough to be killed in one.
    """
    from ray.cluster_utils import Cluster

    size = 80 * 2**20  # of the object store, which nothing here needs
    quick = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # Ray's own
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("SLOW", "0.25")
        head = {"num_cpus": 0, "object_store_memory": size, "include_dashboard": False, "_system_config": quick}
        made = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            made.add_node(num_cpus=1, object_store_memory=size)
        yield made
        made.shutdown()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 images, one of them broken, with the rows of a single process."""
    place = tmp_path_factory.mktemp("ray")
    (place / "nets.py").write_text(NETWORK)
    (place / "id").mkdir()
    (place / "new").mkdir()
    for i in range(IMAGES):
        picture(8, 8, seed=i).save(place / ("id" if i < 30 else "new") / f"{i:04d}.png")
    for i in range(30):
        picture(8, 8, seed=i).save(place / "new" / f"{i:04d}.png")
    (place / "new" / "0777.png").write_bytes(b"no image")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        fit(place, patch, "--method", "scale", "--batch-size", "30")
        assert inside(patch, "score", "new", "-d", "d.safetensors", "-o", "one.csv", "--batch-size", str(SHARD)) == 3
    return place


def command(place: Path, cluster: Any, *options: str) -> subprocess.Popen[str]:
    shards = ("--batch-size", str(SHARD), "--shard-size", str(SHARD))
    on = ("--on", "ray", "--address", cluster.address, "--workers", "2")
    text = ("score", "new", "-d", "d.safetensors", "--trust", "-o", "parts", *shards, *on, *options)
    python = (sys.executable, "-m", "adascale")
    return subprocess.Popen((*python, *text), cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_parts(place: Path, count: int, process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 180
    while len(list((place / "parts").glob("part-*"))) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < limit, f"fewer than {count} shards after 180 seconds"
        time.sleep(0.02)


def actors(node: Any) -> list[Any]:
    """The processes of the workers on a node."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return [child for child in raylet.children() if child.cmdline()[:1] and child.cmdline()[0].startswith("ray::Actor")]


def test_an_actor_a_node_and_the_driver_are_killed(
    place: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = cluster.worker_nodes
    process = command(place, cluster)
    wait_for_parts(place, 2, process)
    (actors(first) or actors(second))[0].kill()
    wait_for_parts(place, 7, process)
    raylet = second.all_processes["raylet"][0].process.pid
    os.kill(raylet, signal.SIGKILL)
    wait_for_parts(place, 11, process)
    process.kill()
    process.wait()
    done = {file: file.stat().st_mtime_ns for file in (place / "parts").glob("part-*")}
    assert 11 <= len(done) < 20  # the driver was killed on its way
    assert not (place / "parts" / "manifest.json").exists()

    process = command(place, cluster)
    wait_for_parts(place, len(done) + 1, process)
    process.terminate()
    told = process.communicate(timeout=60)[0]
    assert (process.returncode, told.splitlines()[-1]) == (
        143,
        "adascale: terminated; the same command resumes where it stopped.",
    ), told

    process = command(place, cluster)
    told = process.communicate(timeout=240)[0]
    assert process.returncode == 3, told  # one image cannot be read
    assert {file: file.stat().st_mtime_ns for file in done} == done  # nothing was done again
    monkeypatch.chdir(place)
    assert inside(monkeypatch, "merge", "parts", "-o", "merged.csv") == 0
    assert (place / "merged.csv").read_bytes() == (place / "one.csv").read_bytes()
