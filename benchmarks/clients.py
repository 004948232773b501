"""Clients of a running service, in a process of their own: each sends one image after the other and notes the time.

    python -m benchmarks.clients URL FOLDER --clients 32 --images 256 [--rate PER_SECOND --seconds S]

prints JSON: seconds in all, the latency of each answer of 200, and how many answers had which status. --rate: send so
many a second, whether they are answered or not, for so long (as long as there are clients that are not waiting).
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

_IDLE_S = 2.0


class Load:
    """Images for all clients, in turn, and what came of them."""

    def __init__(self, folder: Path, images: int, rate: float, seconds: float) -> None:
        self._data = [path.read_bytes() for path in sorted(folder.iterdir())]
        self._images, self._rate, self._seconds, self._lock = images, rate, seconds, threading.Lock()
        self._numbers = itertools.count()
        self.latencies: list[float] = []
        self.statuses: Counter[str] = Counter()

    def turns(self) -> Iterator[bytes]:
        """One client's images, each at its time."""
        began = time.perf_counter()
        while True:
            with self._lock:
                number = next(self._numbers)
            if self._rate:
                at = number / self._rate
                if at > self._seconds:
                    return
                time.sleep(max(0.0, began + at - time.perf_counter()))
            elif number >= self._images:
                return
            yield self._data[number % len(self._data)]

    def note(self, status: str, seconds: float) -> None:
        with self._lock:
            self.statuses[status] += 1
            if status == "200":
                self.latencies.append(seconds)


def client(url: str, load: Load) -> None:
    where = urlsplit(url)
    line = http.client.HTTPConnection(where.hostname or "", where.port, timeout=120)
    ended = time.perf_counter()
    for data in load.turns():
        began = time.perf_counter()
        if began - ended > _IDLE_S:
            line.close()  # the service closes idle connections; the next request opens a new one
        try:
            line.request("POST", "/v1/score", data, {"Content-Type": "application/octet-stream"})
            answer = line.getresponse()
            answer.read()
            status = str(answer.status)
        except (OSError, http.client.HTTPException) as error:
            status = type(error).__name__
            line.close()
        ended = time.perf_counter()
        load.note(status, ended - began)
    line.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=0.0)
    given = parser.parse_args()
    load = Load(given.folder, given.images, given.rate, given.seconds)
    threads = [threading.Thread(target=client, args=(given.url, load)) for _ in range(given.clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "latencies": load.latencies, "statuses": load.statuses}))


if __name__ == "__main__":
    main()
