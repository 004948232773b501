"""Threads beside a detector, and the false alarms of many fits."""

from __future__ import annotations

import math
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from adascale import OODDetector
from tests.campaign.tries import Tries
from tests.conftest import SmallNet, seeded


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


@dataclass(frozen=True)
class Cell:
    """One way to fit. images: how many; confidence: None promises alpha on average."""

    method: str
    images: int
    alpha: float = 0.1
    confidence: float | None = None
    tune: bool = False

    def broken(self, rates: list[float]) -> str | None:
        """What the false-alarm rates of many fits say against the promise, beyond chance (4 standard errors)."""
        mean = sum(rates) / len(rates)
        if self.confidence is None:
            error = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / max(1, len(rates) - 1) / len(rates))
            above = mean > self.alpha + 4 * error
            return f"{self}: the mean of {len(rates)} false-alarm rates is {mean:.4f}" if above else None
        share = sum(rate > self.alpha for rate in rates) / len(rates)
        allowed = 1 - self.confidence
        error = math.sqrt(allowed * self.confidence / len(rates))
        return f"{self}: {share:.3f} of {len(rates)} rates are above alpha" if share > allowed + 4 * error else None


CELLS = (
    Cell("adascale_a", 30),
    Cell("adascale_a", 64, tune=True),
    Cell("combined", 40, alpha=0.2),
    Cell("scale", 64, alpha=0.2, tune=True),
    Cell("msp", 80, confidence=0.9),
)
FRESH, FEWEST = 400, 20  # images on which a rate is measured, and fits before a cell is judged


def guarantee(tries: Tries, folder: Path) -> None:
    """Fits on fresh images, in every cell in turn: false alarms keep the promise, but for chance."""
    network, rates = seeded(SmallNet), [list[float]() for _ in CELLS]
    for draw in tries.each():
        number = (tries.first + tries.count) % len(CELLS)
        generator = torch.Generator().manual_seed(draw.randrange(2**31))

        def fit(cell: Cell = CELLS[number], number: int = number, generator: torch.Generator = generator) -> None:
            images = torch.rand(cell.images + FRESH, 3, 8, 8, generator=generator)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                detector = OODDetector(network, cell.method, alpha=cell.alpha, confidence=cell.confidence)
                detector.fit(images[: cell.images], tune=cell.tune)
                rates[number].append(float(detector(images[cell.images :]).is_ood.double().mean()))

        tries.attempt(fit)
    for cell, found in zip(CELLS, rates, strict=True):
        if len(found) >= FEWEST:
            tries.attempt(lambda cell=cell, found=found: cell.broken(found))  # type: ignore[misc]
