"""Peak memory of a benchmark: features live in shards on disk, not in memory.

    python -m benchmarks.memory [--images 50000] [--features 2048] [--classes 100] [--methods all]

Made-up activations are written into a cache as an extraction would leave them; then the benchmark of the methods runs
on them in a process of its own, and its peak is printed beside what the activations take.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from adascale import Classifier, Outputs, Preprocess, detectors
from adascale.bench.run import Entry, Job, Network, tested
from adascale.bench.suites import SuiteImages
from adascale.extraction.batches import Passes
from adascale.extraction.shard_cache import ShardInfo
from adascale.images.sources import ImageSet

PREPROCESS = Preprocess(1, 1, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
BATCH = 512


class HeadOnly(nn.Module):
    """A head; nothing ever goes through it."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("a network pass")


def network(features: int, classes: int) -> Network:
    torch.manual_seed(0)
    return Network("made up", Classifier(HeadOnly(features, classes)), PREPROCESS)


def images(n: int) -> SuiteImages:
    def some(name: str, count: int) -> ImageSet:
        labels = [i % 100 for i in range(count)]
        return ImageSet([f"{name}{i}" for i in range(count)], array=np.zeros((count, 1, 1, 3), np.uint8), labels=labels)

    near, far = {"near": some("near", n // 10)}, {"far": some("far", n // 10)}
    return SuiteImages(some("id", n), some("val", n // 10), some("train", n // 10), near, far, {}, {})


def fill(job: Job) -> None:
    """Write every shard: ReLU-like features, shifted a little in the views, more so for OOD."""
    head, views = job.network.classifier.adopt("fc").head, [v for entry in job.entries for v in entry.method.views]
    generator = torch.Generator().manual_seed(0)
    val, train = ("val", job.images.val), ("train", job.images.train or job.images.val)
    for name, found in [*((name, found) for name, (_, found) in tested(job.images).items()), val, train]:
        cache = job.extractor.cache_of(found)
        for index, start in enumerate(range(0, len(found), BATCH)):
            labels = torch.tensor((found.labels or [])[start : start + BATCH])
            features = torch.randn(len(labels), head.weight.shape[1], generator=generator)
            features = (features + (3 if name in ("id", "val", "train") else 1) * head.weight[labels]).clamp_min(0)
            moved = {view: features + 0.1 * torch.randn(features.shape, generator=generator) for view in views}
            outputs = Outputs(head(features).float(), features, moved, labels)
            cache.write(index, outputs, ShardInfo(len(outputs), {}, "fc", (3, 1, 1)))


def job(arguments: argparse.Namespace, cache: Path) -> Job:
    # What is stored are features, of views that are known beforehand.
    every = [cls.name for cls in detectors.ALL if not (cls().looks_inside or cls.learns_view)]
    names = every if "all" in arguments.methods else arguments.methods
    entries = [Entry(name, detectors.get(name)()) for name in names]
    made = network(arguments.features, arguments.classes)
    return Job(made, images(arguments.images), entries, cache, passes=Passes(BATCH))


def peak(arguments: argparse.Namespace, cache: Path) -> int:
    """MB, of a fresh process that runs the benchmark on a filled cache."""
    command = [sys.executable, "-m", "benchmarks.memory", "--run-in", str(cache), "--methods", *arguments.methods]
    command += [f"--{name}={getattr(arguments, name)}" for name in ("images", "features", "classes")]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def parsed(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--methods", nargs="*", default=["all"])
    parser.add_argument("--run-in", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main() -> None:
    arguments = parsed()
    if arguments.run_in is not None:
        job(arguments, arguments.run_in).run()
        with open("/proc/self/status") as file:
            print(next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmHWM")))
        return
    with tempfile.TemporaryDirectory() as folder:
        fill(job(arguments, Path(folder)))
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.safetensors")) // 2**20
        print(f"{arguments.images} ID images, D = {arguments.features}: {size} MB of activations on disk")
        print(f"peak memory of the benchmark: {peak(arguments, Path(folder))} MB", flush=True)


if __name__ == "__main__":
    main()
