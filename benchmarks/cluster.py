"""Work in shards: how it scales, what a shard costs, the memory of the driver, and the time after a kill.

    python -m benchmarks.cluster [--on local|ray] [--part throughput|overhead|memory|recovery|paper]

The network sleeps for a known time in every pass, so that the scaling itself is measured and not the processor. The
last table computes what 10^9 images cost on a stated cluster from these figures; nothing in it is measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from adascale import OODDetector
from adascale.cluster.executor import Crew, Event, Executor
from adascale.cluster.job import ScoreJob
from adascale.cluster.local import LocalCrew
from adascale.cluster.scoring import Judges, Rows, ScoreShard
from adascale.cluster.tasks import Held, Reply, Task
from adascale.cluster.with_ray import RayCrew
from adascale.decision.detector_file import DetectorFile
from adascale.decision.folders import score_images
from adascale.extraction.batches import Passes
from adascale.images.shard_files import ShardFile
from adascale.images.shards import ImageShards, Shard, list_shards
from adascale.images.sources import find_images
from adascale.network.loading import load_network

SLEEPING = """
import time, torch
from torch import nn
PREPROCESS = {"size": 8, "crop": 8, "mean": [0.5] * 3, "std": [0.25] * 3}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc = nn.Conv2d(3, 64, 3, stride=2), nn.Linear(64, 4)
    def forward(self, x):
        time.sleep(SECONDS)
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
"""
COUNTS = (10, 1_000, 100_000)


@dataclass(frozen=True)
class Figures:
    """What the last table is computed from."""

    handed_out: float  # shards per second
    shard_seconds: float  # overhead of one
    megabytes: float  # of the driver with 100,000 shards
    row_bytes: float


class Sleeping:
    """A detector of a network that sleeps, and a folder of small images."""

    def __init__(self, folder: Path, seconds: float, images: int) -> None:
        self.folder, self.images = folder, folder / "images"
        self.images.mkdir(parents=True)
        generator = np.random.default_rng(0)
        for i in range(images):
            Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(self.images / f"{i:06d}.png")
        self.spec = f"{folder / 'net.py'}:Net"
        (folder / "net.py").write_text(SLEEPING.replace("SECONDS", str(seconds)))
        model, preprocess = load_network(self.spec, None)
        self.detector = OODDetector(model, "scale", preprocess=preprocess).fit(self.images)
        self.detector.save(folder / "d.safetensors", model=self.spec)
        self.file = DetectorFile.read(folder / "d.safetensors")

    def job(self, output: str, size: int, batch_size: int) -> ScoreJob:
        judges = Judges(((str(self.file.path), self.file.sha256),), self.spec)
        shards = list_shards(str(self.images), size=size)
        return ScoreJob(shards, self.folder / output, judges, Passes(batch_size, 1))


class Warm:
    """Has a worker score a shard, which loads all that it needs, and stay busy until the others do the same."""

    name = "warm"

    def __init__(self, job: ScoreJob) -> None:
        self.judges, self.shard, self.folder, self.passes = job.judges, job.shards[0], job.folder, job.passes

    def run(self, held: Held) -> int:
        folder = Path(str(self.folder)).parent / f"warm-{os.getpid()}"
        ScoreShard(self.shard, 0, folder, self.judges, self.passes).run(held)
        time.sleep(4.0)
        return os.getpid()


@contextmanager
def workers(on: str, count: int, warm: ScoreJob | None = None) -> Iterator[Executor]:
    crew: Crew = LocalCrew(count) if on == "local" else RayCrew(count, cpus=0.25)  # they sleep: two cores are enough
    with Executor(crew) as executor:
        if warm is not None:
            pids: set[int] = set()
            while len(pids) < count:
                pids |= {outcome.value for outcome in executor.run([Warm(warm)] * count)}
        yield executor


def throughput(on: str, shards: int = 16, seconds: float = 2.0) -> list[Sequence[object]]:
    """Images per second for 1, 2 and 4 workers that were loaded before; a pass of 8 images takes ``seconds``."""
    lines: list[Sequence[object]] = []
    with tempfile.TemporaryDirectory() as name:
        here = Sleeping(Path(name), seconds, 8 * shards)
        first = 0.0
        for count in (1, 2, 4):
            job = here.job(f"out{count}", 8, 8)
            with workers(on, count, job) as executor:
                began = time.perf_counter()
                job.run(executor)
                rate = 8 * shards / (time.perf_counter() - began)
            first = first or rate
            lines.append((f"{count} workers ({on})", f"{rate:.1f} images/s", f"{rate / first:.2f}x"))
            print(*lines[-1], file=sys.stderr)
    return lines


def overhead(turns: int = 5) -> tuple[list[Sequence[object]], float, float]:
    """Seconds of a shard of 1,000 images beyond its batches: one worker against a loop in this process, in turns."""
    extra = []
    torch.set_num_threads(1)  # as in the worker
    with tempfile.TemporaryDirectory() as name:
        here = Sleeping(Path(name), 0.0, 1000)
        found, passes = find_images(str(here.images)), Passes(50, 1)
        with workers("local", 1, here.job("warm", 1000, 50)) as executor:
            for turn in range(turns):
                began = time.perf_counter()
                for _ in score_images({"scale": here.detector}, found, 0, passes, quiet=True):
                    pass
                alone, began = time.perf_counter() - began, time.perf_counter()
                here.job(f"out{turn}", 1000, 50).run(executor)
                extra.append(time.perf_counter() - began - alone)
        (part,) = (here.folder / "out0").glob("part-*")
        row_bytes = part.stat().st_size / 1000
    seconds = statistics.median(extra)
    network = 1000 * resnet50()
    share = 100 * seconds / network
    lines: list[Sequence[object]] = [
        ("a shard of 1,000 images", f"{1000 * seconds:.0f} ms beyond its batches", ""),
        ("ResNet-50, 1,000 images, one pass, one thread", f"{network:.0f} s", f"overhead {share:.2f} %"),
    ]
    return lines, seconds, row_bytes


def resnet50(images: int = 8, turns: int = 3) -> float:
    """Seconds for an image in a forward pass of torchvision's ResNet-50 on this processor, in one thread."""
    from adascale.core.extras import optional

    model = optional("torchvision.models", "torchvision").resnet50(weights=None).eval()
    batch, seconds = torch.randn(images, 3, 224, 224), []
    with torch.inference_mode():
        model(batch)
        for _ in range(turns):
            began = time.perf_counter()
            model(batch)
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) / images


class Instant:
    """A crew that answers at once, so that only the driver works."""

    size = 64

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._hired = 0

    def hire(self) -> int:
        self._hired += 1
        self._events.append(Event(self._hired, "ready"))
        return self._hired

    def give(self, worker: int, task: Task) -> None:
        columns = ["image", "score", "p_value", "is_ood", "prediction", "error"]
        rows = Rows(f"part-{task.name}.parquet", task.name, 10_000, 0, {"is_ood": 500}, "0" * 64, columns)
        self._events.append(Event(worker, "reply", Reply(rows)))

    def wait(self) -> list[Event]:
        return [self._events.popleft()]

    def close(self) -> None:
        pass


def drive(count: int) -> None:
    """A job of so many shards that nobody computes; prints its peak memory and its seconds."""
    with tempfile.TemporaryDirectory() as name:
        files = [ShardFile(Path(f"/data/train-{i:06d}.tar"), f"train-{i:06d}.tar", f"{i:06d}") for i in range(count)]
        shards = ImageShards([(Shard(f"train-{i:06d}.tar", None, file=file), range(0)) for i, file in enumerate(files)])
        judges = Judges((("d.safetensors", "0" * 64),), "torchvision:resnet50")
        began = time.perf_counter()
        with Executor(Instant()) as executor:
            ScoreJob(shards, Path(name) / "out", judges).run(executor)
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()  # what getrusage says includes the process that started this one
    print(int(status.partition("VmHWM:")[2].split()[0]) / 1024, seconds)


def memory() -> tuple[list[Sequence[object]], float, float]:
    """Peak memory of the driver for 10 to 100,000 shards, each in a process of its own."""
    lines: list[Sequence[object]] = []
    megabytes = rate = 0.0
    for count in COUNTS:
        command = [sys.executable, "-m", "benchmarks.cluster", "--drive", str(count)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        megabytes, seconds = float(told[0]), float(told[1])
        rate = count / seconds
        lines.append((f"driver with {count:,} shards", f"{megabytes:.0f} MB", f"{rate:.0f} shards/s handed out"))
    return lines, megabytes, rate


class Slow:
    """A task that takes three seconds."""

    def __init__(self, number: int) -> None:
        self.name = f"slow {number}"

    def run(self, held: Held) -> int:
        time.sleep(3.0)
        return os.getpid()


class Watched:
    """A crew whose events are noted with their times."""

    def __init__(self, crew: Crew) -> None:
        self.crew, self.size = crew, crew.size
        self.hire, self.give, self.close = crew.hire, crew.give, crew.close
        self.seen: list[tuple[float, Event]] = []

    def wait(self) -> list[Event]:
        events = self.crew.wait()
        self.seen += [(time.perf_counter(), event) for event in events]
        return events


def recovery(on: str) -> list[Sequence[object]]:
    """One of two workers is killed in its second task: when this is seen, and when a new one is ready."""
    crew, killed = Watched(LocalCrew(2) if on == "local" else RayCrew(2)), list[float]()

    def kill(process: int) -> None:
        killed.append(time.perf_counter())
        os.kill(process, signal.SIGKILL)

    with Executor(crew) as executor:
        for number, outcome in enumerate(executor.run(map(Slow, range(10)))):
            if not number:
                threading.Timer(1.0, kill, (outcome.value,)).start()  # in its next task
    lost = next(at for at, event in crew.seen if event.kind == "lost")
    ready = next(at for at, event in crew.seen if event.kind == "ready" and at > lost)
    seen, replaced = lost - killed[0], ready - killed[0]
    return [(f"kill -9 of a worker ({on})", f"seen after {seen:.2f} s", f"a new one ready after {replaced:.1f} s")]


def paper(known: Figures, images: float = 1e9, gpus: int = 64, rate: float = 500.0) -> list[Sequence[object]]:
    """10^9 images on 8 machines with 8 GPUs. rate: images per second of a GPU, which is assumed, not measured."""
    size = 10_000
    shards, hours = images / size, images / (gpus * rate) / 3600
    share = 100 * known.shard_seconds / (size / rate)
    return [
        ("assumed", f"{gpus} GPUs at {rate:.0f} images/s", f"shards of {size:,} images"),
        ("time", f"{hours:.1f} hours", f"{gpus * rate:,.0f} images/s"),
        (
            "shards",
            f"{shards:,.0f}",
            f"one in {size / (gpus * rate):.2f} s; the driver manages {known.handed_out:.0f} per s",
        ),
        ("overhead", f"{share:.1f} %", "if a shard costs what one of 1,000 files does"),
        ("driver", f"{known.megabytes:.0f} MB", "as measured for 100,000 shards"),
        ("rows", f"{images * known.row_bytes / 1e9:.0f} GB", f"{known.row_bytes:.0f} bytes each"),
        ("a lost machine", f"{8 * size:,} images", "at most are scored again: one shard for each of its GPUs"),
    ]


def table(title: str, lines: Sequence[Sequence[object]]) -> None:
    print(f"\n| {title} | | |\n|---|---|---|")
    for line in lines:
        print("| " + " | ".join(map(str, line)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=("local", "ray"), default="local")
    parser.add_argument("--part", choices=("throughput", "overhead", "memory", "recovery", "paper"))
    parser.add_argument("--drive", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        return drive(given.drive)
    wanted = {given.part} if given.part else {"throughput", "overhead", "memory", "recovery", "paper"}
    if "throughput" in wanted:
        table("a pass of 8 images sleeps 2 s", throughput(given.on))
    if "recovery" in wanted:
        table("recovery", recovery(given.on))
    if wanted & {"overhead", "memory", "paper"}:
        (costs, seconds, written), (sizes, megabytes, rate) = overhead(), memory()
        table("overhead", costs)
        table("memory", sizes)
        table("10^9 images, on paper", paper(Figures(rate, seconds, megabytes, written)))


if __name__ == "__main__":
    main()
