"""What happens when the process is told to stop, or is killed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adascale import load_network
from adascale.decision.ood_detector import OODDetector
from tests.images.pictures import picture
from tests.service.serving import Process, png, score, together
from tests.shell import NETWORK

OF_THE_PROCESS = ("images_seen", "flagged", "flag_rate")  # the monitor itself is kept


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("serve")
    (made / "nets.py").write_text(NETWORK)
    spec = f"{made / 'nets.py'}:Net"
    model, preprocess = load_network(spec)
    detector = OODDetector(model, "mls", preprocess=preprocess).fit([picture(seed=i) for i in range(30)])
    detector.save(made / "d.safetensors", model=spec)
    return made


def served(folder: Path) -> Process:
    given = f"mine={folder / 'd.safetensors'}", "--trust", "--state", folder / "state", "--drain-s", "3"
    return Process(*given, SLOW="0.02")


@pytest.fixture(scope="module")
def restarted(folder: Path) -> Iterator[tuple[dict[str, Any], Process]]:
    """What the monitor said before the process was killed, and the next process."""
    with served(folder) as first:
        for seed in range(7):
            assert score(first.client, png(seed)).status_code == 200
        before = first.client.get("/v1/monitor").json()
        first.process.kill()
        first.process.wait()
    with served(folder) as second:
        yield before, second


def test_a_killed_service_goes_on_where_it_was(restarted: tuple[dict[str, Any], Process]) -> None:
    before, second = restarted
    assert before["images"] == 7
    after = second.client.get("/v1/monitor").json()
    assert {name: value for name, value in after.items() if name not in OF_THE_PROCESS} == {
        name: value for name, value in before.items() if name not in OF_THE_PROCESS
    }


def test_nothing_that_was_taken_on_is_lost_at_the_end(folder: Path, restarted: tuple[dict[str, Any], Process]) -> None:
    _, service = restarted
    client, seen = service.client, service.client.get("/v1/monitor").json()["images"]

    def ask() -> int:
        """How many images are answered until the service says that it stops."""
        for count in range(10_000):
            answer = score(client, png(count % 5))
            if answer.status_code == 503:
                assert answer.headers["connection"] == "close"
                return count
            assert answer.status_code == 200
        raise AssertionError("the service never stopped")

    def stop() -> None:
        time.sleep(0.5)  # let the load begin
        service.process.send_signal(signal.SIGTERM)
        while (ready := client.get("/v2/health/ready")).status_code == 200:
            time.sleep(0.01)
        assert ready.status_code == 503
        assert client.get("/v2/health/live").status_code == 200  # still there, but takes on nothing

    answered = sum(count or 0 for count in together([*[ask] * 6, stop]))
    assert service.process.wait(30) == 0
    assert answered > 0
    (state,) = (folder / "state" / "mine").glob("*/monitor-*.safetensors")
    assert state.stem == f"monitor-{seen + answered}"
    service._reader.join(10)
    assert json.loads(service.lines[-1])["event"] == "stopped"
