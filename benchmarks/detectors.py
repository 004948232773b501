"""Time and memory of every method on made-up features.

    python -m benchmarks.detectors [--sizes N,D,C N,D,C] [--methods knn mds ...] [--json]

For each method: fit and score time as a multiple of one float32 product ``features @ W.T`` of the same rows (measured
beside it, best of three), and the peak memory beyond the inputs. Two sizes show how they grow. Fitting sees N rows,
scoring min(N, 2000). Methods that look inside the network are given four made-up layers, of D/8, D/4, D/2 and D
channels and 4 positions; "tapped" is what they keep of an image, in KB, where a feature map is never kept.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from adascale import AdascaleError, AdascaleWarning, Head, Outputs, Tap, View, detectors
from adascale.core.types import Need
from adascale.maths.layers import reduced

DEFAULT_SIZES = ["5000,512,100", "20000,512,100"]
_SCORED = 2_000


def made_up(
    n: int, features: int, classes: int, needs: tuple[Need, ...], seed: int = 0, signal: float = 3.0
) -> tuple[Outputs, Head]:
    """ReLU-like features around class directions; perturbed ones nearby. Built in place: nothing is left over."""
    generator = torch.Generator().manual_seed(seed)
    head = Head(torch.randn(classes, features, generator=generator) / features**0.5, torch.zeros(classes))
    labels = torch.arange(n) % classes
    values = torch.empty(n, features)
    for start in range(0, n, 4096):
        rows = labels[start : start + 4096]
        values[start : start + 4096] = (
            torch.randn(len(rows), features, generator=generator) + signal * head.weight[rows]
        )
    values.clamp_min_(0)
    logits = values @ head.weight.T
    views = dict.fromkeys((need for need in needs if isinstance(need, View)), values)
    taps = {need: _layers(values, need) for need in needs if isinstance(need, Tap)}
    return Outputs(logits, values, views, labels, taps), head


def _layers(values: torch.Tensor, tap: Tap) -> tuple[torch.Tensor, ...]:
    """What the tap gives of maps that are made of the features."""
    found = []
    for share in (8, 4, 2, 1):
        channels = values[:, : values.shape[1] // share]
        pieces = (
            rows[:, :, None, None] * torch.linspace(0.5, 1.5, 4).view(2, 2) for rows in torch.split(channels, 1024)
        )
        gradient = tap.needs_gradient
        found.append(torch.cat([reduced(maps, tap, 1e-3 * maps if gradient else None) for maps in pieces]))
    return tuple(found)


def peak_beyond(work: Callable[[], object]) -> float:
    """MB of memory that ``work`` needed at most beyond what was there (Linux; nan elsewhere)."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets the peak
        before = _status("VmRSS")
    except OSError:
        work()
        return float("nan")
    work()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))


def best_of(repeats: int, work: Callable[[], object]) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def measure(cls: type[detectors.Detector], n: int, features: int, classes: int, repeats: int) -> dict[str, Any]:
    detector = cls()
    outputs, head = made_up(n, features, classes, detector.wants)
    scored = outputs[:_SCORED]
    weight = head.weight.T.contiguous()
    row: dict[str, Any] = {"method": cls.name, "n": n, "features": features, "classes": classes}
    row["tapped_kb"] = sum(layer[:1].nbytes for layers in outputs.taps.values() for layer in layers) / 1024
    try:
        row["fit_mb"] = peak_beyond(lambda: detector.fit(outputs, head))
    except AdascaleError as error:
        return {**row, "error": str(error)}
    if cls.learns_view:  # now it is known
        scored = replace(scored, views=dict.fromkeys(detector.views, scored.features))
    row["score_mb"] = peak_beyond(lambda: detector.score(scored))
    fit_product = best_of(repeats, lambda: outputs.features @ weight)
    row["fit"] = best_of(repeats, lambda: detector.fit(outputs, head)) / fit_product
    score_product = best_of(repeats, lambda: scored.features @ weight)
    row["score"] = best_of(repeats, lambda: detector.score(scored)) / score_product
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=DEFAULT_SIZES, metavar="N,D,C")
    parser.add_argument("--methods", nargs="+", default=[cls.name for cls in detectors.ALL])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", AdascaleWarning)
    if not arguments.json:
        print("| method | N, D, C | fit / product | score / product | fit MB | score MB | tapped KB |")
        print("|---|---|---|---|---|---|---|")
    for name in arguments.methods:
        for size in arguments.sizes:
            n, features, classes = map(int, size.split(","))
            row = measure(detectors.get(name), n, features, classes, arguments.repeats)
            if arguments.json:
                print(json.dumps(row), flush=True)
            elif "error" in row:
                print(f"| {name} | {size} | {row['error']} | | | | |", flush=True)
            else:
                times = f"{row['fit']:.2f} | {row['score']:.2f}"
                memory = f"{row['fit_mb']:.0f} | {row['score_mb']:.0f} | {row['tapped_kb']:.1f}"
                print(f"| {name} | {size} | {times} | {memory} |", flush=True)


if __name__ == "__main__":
    main()
