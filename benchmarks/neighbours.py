"""KNN on a large bank: blocks of our own against FAISS, and are the scores the same?

    python -m benchmarks.neighbours [--rows 200000] [--features 512] [--k 50]

Made-up features in clusters, one thread. The time of a call is the median of several, FAISS's index built beforehand.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from adascale import Head, Outputs, detectors
from adascale.core.extras import optional
from adascale.detectors import neighbours

_BATCHES = (1, 4, 16, 64)


def clusters(rows: int, features: int, seed: int) -> torch.Tensor:
    """Non-negative features around 100 centres."""
    centres = torch.rand(100, features, generator=torch.Generator().manual_seed(0))
    drawn = torch.Generator().manual_seed(seed)
    which = torch.randint(0, 100, (rows,), generator=drawn)
    return torch.randn(rows, features, generator=drawn).mul_(0.3).add_(centres[which]).clamp_min_(0)


def median_time(method: detectors.Detector, outputs: Outputs, times: int = 7) -> tuple[float, torch.Tensor]:
    took, scores = [], method.score(outputs)
    for _ in range(times):
        began = time.perf_counter()
        scores = method.score(outputs)
        took.append(time.perf_counter() - began)
    return statistics.median(took), scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--k", type=int, default=50)
    given = parser.parse_args()
    optional("faiss", "faiss").omp_set_num_threads(1)
    torch.set_num_threads(1)
    bank, test = clusters(given.rows, given.features, 1), clusters(max(_BATCHES), given.features, 2)
    head = Head(torch.randn(10, given.features, generator=torch.Generator().manual_seed(3)))
    method = detectors.KNN(k=given.k).fit(Outputs(bank[:, :10].clone(), bank), head)
    neighbours.FEWEST_ROWS, neighbours.MOST_SAMPLES = 0, 0
    outputs = Outputs(test[:, :10].clone(), test)
    ours = {n: median_time(method, outputs[:n]) for n in _BATCHES}
    neighbours.MOST_SAMPLES, neighbours.CALLS_BEFORE = max(_BATCHES), 0
    began = time.perf_counter()
    method.score(outputs[:1])
    print(f"{given.rows} rows of {given.features} features, k = {given.k}; index built in {_since(began):.1f} s")
    for n, (blocks, scores) in ours.items():
        faiss, same = median_time(method, outputs[:n])
        equal = "same bits" if torch.equal(scores, same) else "DIFFERENT"
        print(f"{n:3} samples: blocks {1000 * blocks:7.1f} ms, FAISS {1000 * faiss:7.1f} ms, {equal}")


def _since(began: float) -> float:
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
