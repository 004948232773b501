"""Kills and resumed runs, threads beside a detector, and the false alarms of many fits."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import torch

from adascale import OODDetector
from tests.campaign.tries import Tries
from tests.conftest import SmallNet, seeded
from tests.images.pictures import picture
from tests.shell import NETWORK

MODEL = "nets.py:Net"
SCORE = ["score", "id", "-d", "d.safetensors", "--trust", "--batch-size", "3", "-o"]
COMMANDS = {
    "csv": ([*SCORE, "out.csv"], "out.csv"),
    "jsonl": ([*SCORE, "out.jsonl"], "out.jsonl"),
    "parquet": ([*SCORE, "out.parquet"], "out.parquet"),
    "decide": ([*SCORE, "out.csv", "--decide"], "out.csv"),
    "fit": (["fit", "id", "--model", MODEL, "--batch-size", "3", "-o", "out.safetensors"], "out.safetensors"),
}


def faults(tries: Tries, folder: Path) -> None:
    """A run is killed at a random moment; the same command then gives the bytes of a run that was left alone."""
    (folder / "nets.py").write_text(NETWORK)
    (folder / "id").mkdir()
    for i in range(24):
        picture(seed=i).save(folder / "id" / f"{i:02d}.png")
    _run(folder, ["fit", "id", "--model", MODEL, "-o", "d.safetensors"])
    expected: dict[str, tuple[bytes, float]] = {}
    for draw in tries.each():
        name = draw.choice(sorted(COMMANDS))
        arguments, out = COMMANDS[name]
        if name not in expected:
            began = time.monotonic()
            _run(folder, arguments)
            expected[name] = (folder / out).read_bytes(), time.monotonic() - began
            (folder / out).unlink()
        tries.attempt(lambda name=name, draw=draw: _killed(folder, name, draw, *expected[name]))  # type: ignore[misc]


def _killed(folder: Path, name: str, draw: random.Random, expected: bytes, seconds: float) -> str | None:
    arguments, out = COMMANDS[name]
    process = subprocess.Popen(_program(arguments), cwd=folder, env=_environment(), stdout=-3, stderr=-3)
    time.sleep(draw.uniform(0, 1.2 * seconds))
    process.send_signal(draw.choice((signal.SIGKILL, signal.SIGTERM)))
    process.wait(60)
    _run(folder, arguments)
    found = (folder / out).read_bytes()
    (folder / out).unlink()
    left = [path.name for path in folder.iterdir() if path.name.startswith("out.") or path.name.endswith(".lock")]
    return f"{name}: other bytes" if found != expected else f"{name}: left {left}" if left else None


def _program(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "adascale", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "SLOW": "0.05"}


def _run(folder: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        _program(arguments), cwd=folder, env=_environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def threads(tries: Tries, folder: Path) -> None:
    """Plain calls of the network beside 7 threads that score with a detector of it: every answer is as ever."""
    network, images = seeded(SmallNet), torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detector = OODDetector(network.eval(), "adascale_a").fit(images)
    logits, scores, stop = network(images[:8]).detach(), detector.score(images[:8]), threading.Event()
    wrong: list[str] = []

    def score() -> None:
        while not stop.is_set():
            if not torch.allclose(detector.score(images[:8]), scores, rtol=1e-9):
                wrong.append("a detector gave other scores")

    others = [threading.Thread(target=score) for _ in range(7)]
    for thread in others:
        thread.start()
    for _ in tries.each():
        tries.attempt(lambda: None if torch.equal(network(images[:8]), logits) else "the network gave other logits")
    stop.set()
    for thread in others:
        thread.join(60)
    tries.attempt(lambda: wrong[0] if wrong else None)


def guarantee(tries: Tries, folder: Path) -> None:
    """Fits on fresh images: the mean false-alarm rate lies below alpha, but for chance (4 standard errors)."""
    network, alpha, rates = seeded(SmallNet), 0.1, list[float]()
    for draw in tries.each():
        generator = torch.Generator().manual_seed(draw.randrange(2**31))

        def fit(generator: torch.Generator = generator) -> None:
            images = torch.rand(30 + 100, 3, 8, 8, generator=generator)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                detector = OODDetector(network, "adascale_a", alpha=alpha).fit(images[:30], tune=False)
            rates.append(float(detector(images[30:]).is_ood.double().mean()))

        tries.attempt(fit)
    mean = sum(rates) / len(rates)
    error = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / max(1, len(rates) - 1) / len(rates))
    above = f"the mean of {len(rates)} false-alarm rates is {mean:.4f} ± {error:.4f}, above {alpha}"
    tries.attempt(lambda: above if len(rates) > 20 and mean > alpha + 4 * error else None)
