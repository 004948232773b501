"""Tries of one part of the campaign: counted, timed, bounded, and every input that fails is kept."""

from __future__ import annotations

import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CASES = Path(__file__).parent / "cases"  # inputs that failed once; every campaign begins with them
HANGS = 180.0  # seconds after which a try counts as hanging
MEMORY = 1.5e9  # bytes that a process may hold at its peak


@dataclass
class Tries:
    """The tries of one part.

    seconds, most: when it ends at the latest; keep: the folder of inputs that failed; first: the number of its first
    try, to repeat one that failed.
    """

    part: str
    seed: int
    seconds: float
    most: int
    keep: Path
    first: int = 0
    began: float = field(default_factory=time.monotonic)
    count: int = 0
    slowest: float = 0.0
    peak: float = 0.0
    held: float = field(default_factory=lambda: _peak())  # before the first try, by whatever ran in this process
    failures: list[str] = field(default_factory=list)

    def each(self) -> Iterator[random.Random]:
        """Random numbers for each try, which depend on the seed, the part and the number of the try alone."""
        end = self.began + self.seconds  # what is prepared before the first try counts too
        while self.count < self.most and (time.monotonic() < end or not self.count):
            yield random.Random(f"{self.seed} {self.part} {self.first + self.count}")
            self.count += 1

    def attempt(self, action: Callable[[], str | None], given: bytes = b"", name: str = "try.bin") -> None:
        """A try fails if the action raises, hangs, or returns what is wrong. name: what the input is kept as."""
        began = time.monotonic()
        try:
            with _in_time():
                wrong = action()
        except Exception:
            wrong = traceback.format_exc(limit=-4, chain=False)
        self.slowest = max(self.slowest, time.monotonic() - began)
        if wrong is not None:
            self.fail(wrong, given, name)

    def fail(self, wrong: str, given: bytes = b"", name: str = "try.bin") -> None:
        number = self.first + self.count
        again = f"python -m tests.campaign --only {self.part} --seed {self.seed} --first {number} --tries 1"
        if given:
            self.keep.mkdir(parents=True, exist_ok=True)
            (self.keep / f"{self.part}-{self.seed}-{number}-{name}").write_bytes(given)
        self.failures.append(f"{number}: {wrong}")
        print(f"{self.part}, try {number}: {wrong}\nAgain: {again}", file=sys.stderr, flush=True)

    def cases(self) -> list[tuple[str, bytes]]:
        """The inputs of this part that failed once: what they are, and their bytes."""
        found = sorted(CASES.glob(f"{self.part}-*")) if CASES.is_dir() else []
        return [(path.name.split("-", 3)[3], path.read_bytes()) for path in found]

    def close(self) -> None:
        """Look at the memory that this process, its children and what else was reported held at their peaks."""
        self.peak = max(self.peak, _peak())
        if self.peak > max(MEMORY, self.held):
            self.fail(f"{self.peak / 1e9:.2f} GB at the peak")

    def row(self) -> str:
        return (
            f"| {self.part} | {self.count} | {len(self.failures)} | {self.peak / 1e9:.2f} GB | {self.slowest:.2f} s |"
        )


def _peak() -> float:
    """The most bytes that this process, or one of its children, has held."""
    own = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return 1024.0 * max(own)


@contextmanager
def _in_time() -> Iterator[None]:
    """Raises if the block hangs; in the main thread alone, which is where signals come."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def hangs(*_: object) -> None:
        raise TimeoutError(f"hangs: more than {HANGS:g} seconds")

    before = signal.signal(signal.SIGALRM, hangs)
    try:
        signal.setitimer(signal.ITIMER_REAL, HANGS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """The data with some bytes changed, cut out, repeated or cut off."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        place = draw.randrange(len(changed)) if changed else 0
        kind = draw.choice(("byte", "byte", "bit", "word", "cut", "repeat", "end"))
        if kind == "byte" and changed:
            changed[place] = draw.randrange(256)
        elif kind == "bit" and changed:
            changed[place] ^= 1 << draw.randrange(8)
        elif kind == "word":
            changed[place : place + 4] = draw.choice(
                (b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\1\0\0")
            )
        elif kind == "cut":
            del changed[place : place + draw.randrange(1, 64)]
        elif kind == "repeat":
            changed[place:place] = changed[place : place + draw.randrange(1, 64)]
        elif draw.random() < 0.3:
            del changed[place:]
    return bytes(changed)
