"""(l) the peak memory of a trivial-pixel extraction against that of a plain forward pass, each in a fresh process.

    python -m benchmarks.extraction NETWORK plain|extraction

prints the peak of one such process in MB.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

import torch

from adascale import View
from adascale.extraction.extract import extract_batch
from benchmarks.measured import Ratio
from benchmarks.subjects import subject

BATCH = 32
_MOST = {"imagenet_resnet50": 1.40}


def memory(name: str, repeats: int) -> Iterator[Ratio]:
    """Batches of 32; the peak is that of the whole process, with torch and the weights."""
    plain, ours = ([_peak(name, what) for _ in range(repeats)] for what in ("plain", "extraction"))
    turns = [a / b for a, b in zip(ours, plain, strict=True)]
    note = f"{statistics.median(ours):.0f} MB / {statistics.median(plain):.0f} MB"
    what = "peak memory of an extraction, trivial pixels, batch 32 / plain forward"
    found = statistics.median(turns), min(turns), max(turns), len(turns)
    yield Ratio("l", what, name, *found, _MOST.get(name), note)


def _peak(name: str, what: str) -> int:
    command = [sys.executable, "-m", "benchmarks.extraction", name, what]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    name, what = sys.argv[1:]
    given = subject(name, BATCH, 2)
    classifier = given.classifier() if what == "extraction" else None
    with open("/proc/self/clear_refs", "w") as file:  # the peak begins anew, without what loading took
        file.write("5")
    for _ in range(2):
        if classifier is None:
            with torch.inference_mode():
                given.model(given.known)
        else:
            extract_batch(classifier, given.known, [View("trivial")])
    with open("/proc/self/status") as file:
        print(next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmHWM")))


if __name__ == "__main__":
    main()
