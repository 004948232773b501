"""(o) the service against the in-process loop: throughput, latency; and how it bears overload.

    ADASCALE_DATA=DIR python -m benchmarks.serve NETWORK --overload MINUTES

sends twice as many images as the service can judge, and prints what was answered and how its memory grew.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from adascale.decision.ood_detector import OODDetector
from benchmarks.measured import Ratio, of_seconds, ratio, seconds_of
from benchmarks.subjects import REAL, Subject, jpegs, subject

CLIENTS = (1, 8, 32)
MOST = 1 / 0.9  # the service has at least 0.9 of the throughput of the loop


class Served:
    """``adascale serve`` with the default detector of a network, in a process of its own, and real images."""

    def __init__(self, here: Subject, folder: Path, images: int) -> None:
        self.files = folder / "images"
        self.files.mkdir()
        spec = f"{os.environ['ADASCALE_DATA']}/networks.py:{here.name}"
        preprocess = jpegs(self.files, images, here.name)
        self.detector = OODDetector(here.classifier(), preprocess=preprocess).fit(here.val)
        self.detector.save(folder / "d.safetensors", model=spec)
        self.count, self._folder = len(list(self.files.iterdir())), folder

    @contextmanager
    def running(self, *options: str) -> Iterator[tuple[str, psutil.Process]]:
        """The address of the service and its process."""
        command = [sys.executable, "-m", "adascale", "serve", str(self._folder / "d.safetensors"), "--port", "0"]
        command += ["--trust", "--state", str(self._folder / "state"), *options]
        with open(self._folder / "log", "w+") as log:
            process = subprocess.Popen(command, stderr=log)
            try:
                yield self._address(process), psutil.Process(process.pid)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()

    def _address(self, process: subprocess.Popen[bytes]) -> str:
        while process.poll() is None:
            for line in (self._folder / "log").read_text().splitlines():
                if '"listening"' in line:
                    url: str = json.loads(line)["url"]
                    return url
            time.sleep(0.2)
        raise RuntimeError((self._folder / "log").read_text())

    def sent(self, url: str, clients: int, images: int, **more: float) -> Any:
        """What so many clients in another process got."""
        command = [sys.executable, "-m", "benchmarks.clients", url, str(self.files), f"--clients={clients}"]
        command += [f"--images={images}", *(f"--{name}={value}" for name, value in more.items())]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def loop(self) -> None:
        """The same images in this process, from files to verdicts, in the batches of the service."""
        self.detector.batch_size = 16
        for _ in self.detector.stream(self.files):
            pass

    def one(self) -> float:
        """Seconds for one image in this process, decoding included: the median."""
        paths = sorted(self.files.iterdir())[:16]
        self.detector(paths[0])
        return float(torch.tensor([seconds_of(lambda path=path: self.detector(path)) for path in paths]).median())  # type: ignore[misc]


def serve(here: Subject, images: int, repeats: int) -> Iterator[Ratio]:
    """Throughput and latency in turns with the loop. Networks without files of their own cannot be served."""
    if here.name not in REAL:
        return
    with tempfile.TemporaryDirectory() as folder:
        served = Served(here, Path(folder), images)
        with served.running() as (url, process):
            served.sent(url, 32, min(64, images))
            served.loop()
            ours, loops, latencies = [], [], {n: list[list[float]]() for n in CLIENTS}
            busy, busy_loops = [], []
            for _ in range(repeats):
                began = time.process_time()
                loops.append(seconds_of(served.loop))
                busy_loops.append(time.process_time() - began)
                began = sum(process.cpu_times()[:2])
                found = served.sent(url, 32, served.count)
                busy.append(sum(process.cpu_times()[:2]) - began)
                ours.append(found["seconds"])
                assert found["statuses"] == {"200": served.count}, found["statuses"]
                latencies[32].append(found["latencies"])
                for n in (1, 8):
                    latencies[n].append(served.sent(url, n, min(24 * n, served.count))["latencies"])
            rate = served.count / sorted(ours)[len(ours) // 2]
            note = f"{served.count} files, {rate:.1f} images a second here; at most 1.11 is a throughput of 0.9"
            yield ratio(
                "o", "service with 32 clients / in-process loop", here.name, of_seconds(ours, loops), MOST, note
            )
            times = of_seconds(busy, busy_loops)
            note = "of the service alone, without its clients"
            yield ratio("o", "processor time with 32 clients / in-process loop", here.name, times, None, note)
            alone = served.one()
            for n, turns in latencies.items():
                for name, share in (("p50", 0.5), ("p99", 0.99)):
                    seconds = [float(torch.tensor(turn).quantile(share)) for turn in turns]
                    times = of_seconds(seconds, [alone] * len(seconds))
                    note = f"{1000 * alone:.1f} ms for one image"
                    yield ratio("o", f"{name} with {n} clients / one image in process", here.name, times, None, note)


def overload(name: str, minutes: float) -> None:
    """Twice the load that the service can bear; prints answers, and memory minute by minute.

    The first minute does not count for the memory: until then batches of each size, and each buffer, are met once.
    """
    with tempfile.TemporaryDirectory() as folder:
        served = Served(subject(name, 64, 64), Path(folder), 64)
        with served.running("--queue", "64") as (url, process), ThreadPoolExecutor(1) as pool:
            rate = 256 / served.sent(url, 32, 256)["seconds"]
            sending = pool.submit(served.sent, url, 128, 0, rate=2 * rate, seconds=60 * (minutes + 1))
            memory = []
            while not sending.done():
                wait([sending], 60)
                memory.append(process.memory_info().rss)
            found, normal = sending.result(), served.sent(url, 8, 64)
    sent, seconds = sum(found["statuses"].values()), found["seconds"]
    print(f"{name}: {rate:.1f} images a second; sent {sent / seconds:.1f} a second for {seconds:.0f} s")
    print(f"answers: {found['statuses']}; 200s a second: {len(found['latencies']) / seconds:.1f}")
    print(f"memory in MB, minute by minute: {', '.join(f'{rss / 2**20:.0f}' for rss in memory)}")
    print(f"at the end / after the first minute: {memory[-1] / memory[0]:.3f}")
    print(f"afterwards, 64 images by 8 clients: {normal['statuses']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=REAL)
    parser.add_argument("--overload", type=float, default=10.0, metavar="MINUTES")
    given = parser.parse_args()
    overload(given.network, given.overload)


if __name__ == "__main__":
    main()
