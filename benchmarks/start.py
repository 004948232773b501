"""(j) calls that need no network, against the import of PyTorch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.measured import Ratio, of_seconds, ratio, seconds_of

CALLS = {
    "adascale --help": ["--help"],
    "adascale fit --help": ["fit", "--help"],
    "adascale methods": ["methods"],
    "an unknown command": ["fti"],
    "an unknown method": ["fit", ".", "--model", "digits", "-o", "x", "--method", "scal"],
    "a missing file": ["score", "nowhere", "-d", "nowhere"],
}


def start(repeats: int) -> Iterator[Ratio]:
    """Every call in a process of its own."""
    for name, arguments in CALLS.items():
        calls, imports = [], []
        for _ in range(repeats):
            calls.append(seconds_of(lambda given=arguments: _run("-m", "adascale", *given)))  # type: ignore[misc]
            imports.append(seconds_of(lambda: _run("-c", "import torch")))
        yield ratio("j", "time to answer / import torch", name, of_seconds(calls, imports), 0.3)


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
