"""``python -m tests.campaign [--minutes N] [--only PART,PART] [--seed N] [--first N] [--tries N]``.

Prints a table and exits with 1 if a try failed. The same seed makes the same tries; how many of them, time decides.
Inputs that fail are kept in a folder (--keep); put one into tests/campaign/cases, and every campaign begins with it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from tests.campaign.inputs import files, images
from tests.campaign.kills import faults, kills
from tests.campaign.names import names
from tests.campaign.running import CELLS, guarantee, threads
from tests.campaign.service import service
from tests.campaign.tries import Tries

# The share of the time of each part, and the tries of the long form.
PARTS: dict[str, tuple[Callable[[Tries, Path], None], float, int]] = {
    "images": (images, 0.12, 10_000),
    "files": (files, 0.15, 5_000),
    "names": (names, 0.05, 1_000),
    "threads": (threads, 0.05, 2_000),
    "guarantee": (guarantee, 0.1, 500 * len(CELLS)),
    "service": (service, 0.13, 1_000),
    "faults": (faults, 0.15, 100),
    "kills": (kills, 0.25, 120),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("campaign-failures"), help="folder of inputs that failed")
    parser.add_argument("--first", type=int, default=0, help="number of the first try, to repeat one that failed")
    parser.add_argument("--tries", type=int, help="the most tries of each part [default: those of the long form]")
    given = parser.parse_args()
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"there is no part {unknown.pop()}; choose from {', '.join(PARTS)}")
    torch.set_num_threads(1)
    whole, failed = sum(PARTS[name][1] for name in chosen), 0
    print("| part | tries | failures | peak memory | slowest |\n|---|---|---|---|---|", flush=True)
    for name in chosen:
        run, share, most = PARTS[name]
        seconds = 60 * given.minutes * share / whole
        tries = Tries(name, given.seed, seconds, given.tries or most, given.keep, given.first)
        with tempfile.TemporaryDirectory() as folder:
            run(tries, Path(folder))
        tries.close()
        failed += len(tries.failures)
        print(tries.row(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
