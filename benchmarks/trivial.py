"""A detector with trivial pixels, which need a gradient, as one ONNX file: its decisions and its price.

    ADASCALE_DATA=DIR python -m benchmarks.trivial [NETWORK ...] [--images 200] [--method adascale_a]

The file and the detector judge the same images, half in-distribution and half OOD; the time of the file (onnxruntime)
is compared with that of a plain forward pass in PyTorch, in processor time of one thread each. Exit code 1 if more than
1 decision in 200 differs or the file takes more than 3 times as long.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

from adascale import OODDetector, load_exported
from adascale.core.answers import Verdict, joined
from adascale.core.timing import interleaved
from benchmarks.peers import one_thread
from benchmarks.subjects import subject

MOST_TIME, MOST_DIFFERENT = 3.0, 1 / 200


def line(name: str, images: int, method: str, batch: int) -> tuple[str, bool]:
    """One row of the table, and whether it holds."""
    case = subject(name, images // 2, 100)
    test = torch.cat([case.known[: images // 2], case.unknown[: images - images // 2]])
    detector = OODDetector(case.classifier(), method, pixels="trivial").fit(case.val, tune=False)
    detector.batch_size = batch
    with tempfile.TemporaryDirectory() as folder, one_thread():
        path = Path(folder) / "d.onnx"
        print(f"{name}: {detector.export(path)}", file=sys.stderr)
        exported = load_exported(path)
        theirs: Verdict = joined([exported(part) for part in torch.split(test, batch)])
        ours, some = detector(test), case.known[:batch]
        calls = {"file": lambda: exported(some), "plain": lambda: case.model(some)}
        times = interleaved(calls, repeats=7, clock=time.process_time)
    different, found = int((ours.is_ood != theirs.is_ood).sum()), times["file"].over(times["plain"])
    worst = float(((ours.score - theirs.score).abs() / ours.score.abs()).max())
    holds = different <= MOST_DIFFERENT * len(test) and found.median <= MOST_TIME
    cells = f"{name} | {len(test)} | {different} | {worst:.1e} | {found.median:.2f}"
    return f"| {cells} | {'yes' if holds else 'NO'} |", holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["cifar10_resnet20", "imagenet_resnet50"])
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--method", default="adascale_a")
    parser.add_argument("--batch", type=int, default=8)
    given = parser.parse_args()
    print("| network | images | decisions that differ | largest difference of a score | time / plain forward | holds |")
    print("|---|---:|---:|---:|---:|---|")
    held = True
    for name in given.networks:
        row, holds = line(name, given.images, given.method, given.batch)
        print(row, flush=True)
        held &= holds
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
