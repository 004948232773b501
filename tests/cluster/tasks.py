"""Small pieces of work for the workers of tests."""

from __future__ import annotations

import os
import signal
import warnings
from dataclasses import dataclass
from pathlib import Path

from adascale.cluster.tasks import Held
from adascale.core.errors import AdascaleWarning, InputError


@dataclass(frozen=True)
class Process:
    """The number of the process that made it; ``reason`` is why it cannot be made."""

    reason: str = ""

    def make(self) -> int:
        if self.reason:
            raise InputError(self.reason)
        return os.getpid()


@dataclass(frozen=True)
class Square:
    """The square of a number, and the process that made what it needs.

    kills: the worker is killed as often, counted by files in ``folder``. fails: in the same way, with an error.
    """

    number: int
    folder: Path | None = None
    kills: int = 0
    fails: int = 0
    refuses: str = ""
    recipe: Process = Process()

    @property
    def name(self) -> str:
        return f"square of {self.number}"

    def run(self, held: Held) -> tuple[int, int]:
        maker = held.once(self.recipe)
        if self.refuses:
            raise InputError(self.refuses)
        if self.folder is not None:
            tries = len(list(self.folder.glob(f"{self.number}-*")))
            if tries < self.kills + self.fails:
                (self.folder / f"{self.number}-{tries}").touch()
                if tries < self.kills:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ConnectionError("the store does not answer")
        if self.number == 7:
            warnings.warn("Seven is odd.", AdascaleWarning, stacklevel=2)
        return self.number**2, maker
