"""``python -m tests.campaign [--minutes N] [--only images,files,faults,threads,guarantee] [--seed N]``.

Prints a table and exits with 1 if a try failed. The same seed makes the same tries; how many of them, time decides.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from tests.campaign.inputs import files, images
from tests.campaign.running import faults, guarantee, threads
from tests.campaign.tries import Tries

# The share of the time of each part, and the most tries of the long form.
PARTS: dict[str, tuple[Callable[[Tries, Path], None], float, int]] = {
    "images": (images, 0.2, 10_000),
    "files": (files, 0.25, 5_000),
    "threads": (threads, 0.1, 2_000),
    "guarantee": (guarantee, 0.1, 500),
    "faults": (faults, 0.35, 100),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("campaign-failures"), help="folder of inputs that failed")
    given = parser.parse_args()
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"there is no part {unknown.pop()}; choose from {', '.join(PARTS)}")
    torch.set_num_threads(1)
    whole, failed = sum(PARTS[name][1] for name in chosen), 0
    print("| part | tries | failures | peak memory | slowest |\n|---|---|---|---|---|", flush=True)
    for name in chosen:
        run, share, most = PARTS[name]
        tries = Tries(name, given.seed, 60 * given.minutes * share / whole, most, given.keep)
        with tempfile.TemporaryDirectory() as folder:
            run(tries, Path(folder))
        failed += len(tries.failures)
        print(tries.row(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
