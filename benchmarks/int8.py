"""What int8 costs: AUROC, false alarms, size and time of an exported detector, in float32 and in int8.

    ADASCALE_DATA=DIR python -m benchmarks.int8 [NETWORK ...] [--images 300] [--test 250]

Both files are made by `OODDetector.export` from the same in-distribution images and judge the same fresh ones:
``--test`` in-distribution images and as many OOD images, near and far, of the network's suite (examples/suites).
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import torch

from adascale import OODDetector, load_exported, metrics
from adascale.core.answers import Verdict, joined
from adascale.core.timing import interleaved
from adascale.export.exported import Exported
from benchmarks.subjects import Subject, subject

NETWORKS = ("cifar10_resnet20", "cifar10_densenet101", "imagenet_resnet50")
_MOST_LOSS = 0.5  # points of AUROC


class File(NamedTuple):
    """An exported detector and what it says about the test images, in percent."""

    exported: Exported
    auroc: float
    flagged: float
    megabytes: float


def measured(path: Path, case: Subject) -> File:
    exported = load_exported(path)
    known, unknown = (_judged(exported, images, case.batch) for images in (case.known, case.unknown))
    found = metrics.auroc(known.score, unknown.score)
    return File(exported, 100 * found, 100 * float(known.is_ood.double().mean()), path.stat().st_size / 1e6)


def _judged(exported: Exported, images: torch.Tensor, batch: int) -> Verdict:
    return joined([exported(part) for part in torch.split(images, batch)])


def line(name: str, images: int, test: int, method: str) -> str:
    """One row of the table."""
    case = subject(name, test, images)
    began = time.perf_counter()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        detector = OODDetector(case.model, method).fit(case.val)
        paths = [Path(folder) / f"{kind}.onnx" for kind in ("float", "int8")]
        detector.export(paths[0])
        print(f"{name}: {detector.export(paths[1], int8=case.val)}", flush=True)
        before, after = (measured(path, case) for path in paths)
        some = case.known[: case.batch]
        times = interleaved({"int8": lambda: after.exported(some), "float": lambda: before.exported(some)}, repeats=7)
    low, high = (100 * end for end in after.exported.record["calibration"]["range"])
    cells = (
        name,
        f"{len(case.val)}",
        f"{len(case.known)} + {len(case.unknown)}",
        f"{before.auroc:.2f}",
        f"{after.auroc:.2f}",
        f"{before.auroc - after.auroc:+.2f}{'' if before.auroc - after.auroc <= _MOST_LOSS else ' (too much)'}",
        f"{before.flagged:.1f}",
        f"{after.flagged:.1f} ({low:.1f} to {high:.1f})",
        f"{before.megabytes:.1f} -> {after.megabytes:.1f}",
        f"{times['int8'].over(times['float']).median:.2f}",
    )
    print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--images", type=int, default=300, help="in-distribution images to fit, quantise and calibrate")
    parser.add_argument("--test", type=int, default=250, help="fresh ID images, and OOD images, to test on")
    parser.add_argument("--method", default="combined")
    given = parser.parse_args()
    heads = ["network", "images", "tested on", "AUROC float", "AUROC int8", "loss", "flagged float, %"]
    heads += ["flagged int8, % (90 % of detectors)", "file, MB", "time int8 / float"]
    lines = [line(name, given.images, given.test, given.method) for name in given.networks]
    print(f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines, sep="\n")


if __name__ == "__main__":
    main()
