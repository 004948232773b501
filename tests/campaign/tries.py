"""Tries of one part of the campaign: counted, timed, bounded, and every input that fails is kept."""

from __future__ import annotations

import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Tries:
    """The tries of one part. seconds, most: when it ends at the latest; keep: the folder of inputs that failed."""

    part: str
    seed: int
    seconds: float
    most: int
    keep: Path
    count: int = 0
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)

    def each(self) -> Iterator[random.Random]:
        """Random numbers for each try, which depend on the seed, the part and the number of the try alone."""
        end = time.monotonic() + self.seconds
        while self.count < self.most and (time.monotonic() < end or not self.count):
            yield random.Random(f"{self.seed} {self.part} {self.count}")
            self.count += 1

    def attempt(self, action: Callable[[], str | None], given: bytes = b"", suffix: str = ".bin") -> None:
        """A try fails if the action raises, or returns what is wrong."""
        began = time.monotonic()
        try:
            wrong = action()
        except Exception:
            wrong = traceback.format_exc(limit=-4)
        self.slowest = max(self.slowest, time.monotonic() - began)
        if wrong is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            file = self.keep / f"{self.part}-{self.seed}-{self.count}{suffix}"
            file.write_bytes(given)
            self.failures.append(f"{file.name}: {wrong}")
            print(f"{self.part}, try {self.count}: {wrong}", file=sys.stderr)

    def row(self) -> str:
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return f"| {self.part} | {self.count} | {len(self.failures)} | {peak / 1e6:.2f} GB | {self.slowest:.2f} s |"


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
