"""A large search on extracted activations: how long, and is it the same as refitting and rescoring?

    python -m benchmarks.search [--samples 5000] [--features 2048] [--classes 100]

36 (p_min, p_max) x 4 lambda x 6 k2 x 4 k1 = 3,456 points of AdaSCALE-A on made-up ID and OOD activations; 20 random
points are compared with a detector that is fitted and scored by itself.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import replace
from itertools import product
from typing import Any

import torch

from adascale import View, detectors, metrics
from adascale.decision.tuning import GRIDS, Fold, search_grid
from benchmarks.detectors import made_up


def points() -> list[dict[str, Any]]:
    grid = product(GRIDS["paper"], (1, 5, 10, 20), (1, 5, 10, 20, 50, 100), (1, 2, 5, 10))
    return [{**pair, "lam": lam, "k2": k2, "k1": k1} for pair, lam, k2, k1 in grid]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--classes", type=int, default=100)
    arguments = parser.parse_args()
    both, head = made_up(2 * arguments.samples + 1000, arguments.features, arguments.classes, ())
    shift = torch.randn(both.features.shape, generator=torch.Generator().manual_seed(1)).mul_(0.1)
    both = replace(both, views={View(): shift.add_(both.features)})
    reference, known, unknown = both[:1000], both[1000 : 1000 + arguments.samples], both[1000 + arguments.samples :]
    method, grid = detectors.AdaSCALE_A(), points()
    began = time.monotonic()
    found = search_grid(method, grid, [Fold(reference, known, {"ood": unknown})], head, "made-up samples")
    took = time.monotonic() - began
    worst = 0.0
    for i in random.Random(0).sample(range(len(grid)), 20):
        alone = detectors.AdaSCALE_A(**grid[i]).fit(reference, head)
        worst = max(worst, abs(metrics.auroc(alone.score(known), alone.score(unknown)) - found.trials[i][1]))
    began = time.monotonic()
    detectors.AdaSCALE_A(**grid[0]).fit(reference, head).score(both[1000:])
    once = time.monotonic() - began
    print(f"{len(grid)} points on {len(both) - 1000} samples, D = {arguments.features}, {arguments.classes} classes")
    print(f"search {took:.0f} s = {took / once:.0f} x fitting and scoring once ({len(grid)} x without sharing work)")
    print(f"largest difference of an AUROC at 20 random points: {worst:.1e}")


if __name__ == "__main__":
    main()
