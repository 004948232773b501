"""Hostile requests to a real ``adascale serve``: each is answered by a 4xx, and then all is as before."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil

from adascale import load_network
from adascale.decision.ood_detector import OODDetector
from tests.campaign.tries import Tries, mutated
from tests.images.pictures import picture
from tests.service.hostile import GOOD, eventually, hostile, slow
from tests.service.serving import Process, metric, png, score, together, wait_until_ready
from tests.shell import NETWORK

AT_ONCE, SLOW_ONES = 16, 9
LIMITS = "--max-body-mb 1 --max-pixels 100000 --max-images 4 --deadline-s 10 --drain-s 0".split()


def service(tries: Tries, folder: Path) -> None:
    (folder / "nets.py").write_text(NETWORK)
    spec = f"{folder / 'nets.py'}:Net"
    model, preprocess = load_network(spec)
    OODDetector(model, "mls", preprocess=preprocess).fit([picture(seed=i) for i in range(30)]).save(
        folder / "d.safetensors", model=spec
    )
    given = f"d={folder / 'd.safetensors'}", "--trust", "--state", folder / "state", *LIMITS
    with Process(*given) as process:
        wait_until_ready(process.client)
        before, server = _verdict(process), psutil.Process(process.process.pid)
        with ThreadPoolExecutor(SLOW_ONES) as pool:
            waiting = [pool.submit(slow(seed), process.client) for seed in range(SLOW_ONES)]
            _send(tries, process, server)
            tries.attempt(lambda: _told([(f"slow({i})", one.result()) for i, one in enumerate(waiting)]))
        tries.attempt(lambda: _well(process, before))


def _send(tries: Tries, process: Process, server: psutil.Process) -> None:
    """So many requests at a time."""
    for draw in tries.each():
        if tries.count % AT_ONCE == 0:
            calls = [_one(process.client, draw.randrange(2**31)) for _ in range(AT_ONCE)]
            tries.attempt(lambda calls=calls: _refused(calls))  # type: ignore[misc]
            tries.peak = max(tries.peak, float(server.memory_info().rss))


def _one(client: httpx.Client, seed: int) -> tuple[str, Callable[[], int]]:
    """A hostile request, or a damaged picture, which is answered by its verdict or by 422."""
    if seed % 4:
        return f"hostile({seed})", lambda: hostile(seed)(client)
    data = mutated(png(seed % 7), random.Random(seed))
    return f"damaged({seed})", lambda: 400 if (s := score(client, data).status_code) in (200, 413, 422) else s


def _refused(calls: list[tuple[str, Callable[[], int]]]) -> str | None:
    names, answers = zip(*calls, strict=True)
    return _told(list(zip(names, together(list(answers)), strict=True)))


def _told(answers: list[tuple[str, int]]) -> str | None:
    return "; ".join(f"{name} got {status}" for name, status in answers if status // 100 != 4) or None


def _verdict(process: Process) -> dict[str, object]:
    """What it says about a good picture, but for the number of the request."""
    (row,) = score(process.client, GOOD).json()
    return {name: value for name, value in row.items() if name != "id"}


def _well(process: Process, before: object) -> str | None:
    """It holds nothing, gives the verdict that it gave first, and stops as it should."""
    client, inside = process.client, 'adascale_queue_images{detector="d"}'
    if not eventually(lambda: metric(client, "adascale_held_bytes") == 0 and metric(client, inside) == 0):
        return "requests are still held"
    wait_until_ready(client)
    if (after := _verdict(process)) != before:
        return f"another verdict: {after} in place of {before}"
    process.process.send_signal(signal.SIGTERM)
    code = process.process.wait(60)
    process._reader.join(10)
    told = "".join(process.lines)
    return f"exit code {code}" if code else "a traceback in the log" if "Traceback" in told else None
