"""What int8 costs: AUROC, false alarms, size and time of an exported detector, in float32 and in int8.

    ADASCALE_DATA=DIR python -m benchmarks.int8 [NETWORK ...] [--images 300] [--test 250] [--draws 1]

Both files are made by `OODDetector.export` from the same in-distribution images and judge the same fresh ones:
``--test`` in-distribution images and as many OOD images, near and far, of the network's suite (examples/suites).
What is promised about false alarms is a mean over draws of the images to calibrate on: with ``--draws`` the ID images
are dealt out again that often, and both files are made anew each time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from statistics import mean, median, stdev
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


class Draw(NamedTuple):
    """The files of one draw of the images that detectors are fitted and calibrated on. times: int8 over float."""

    before: File
    after: File
    time: float


def measured(path: Path, case: Subject) -> File:
    exported = load_exported(path)
    known, unknown = (_judged(exported, images, case.batch) for images in (case.known, case.unknown))
    found = metrics.auroc(known.score, unknown.score)
    return File(exported, 100 * found, 100 * float(known.is_ood.double().mean()), path.stat().st_size / 1e6)


def _judged(exported: Exported, images: torch.Tensor, batch: int) -> Verdict:
    return joined([exported(part) for part in torch.split(images, batch)])


def redrawn(case: Subject, seed: int) -> Subject:
    """Other ID images to fit on, the rest to test on; those of the suite with seed 0."""
    if not seed:
        return case
    images, count = torch.cat([case.val, case.known]), len(case.val)
    images = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))]
    return replace(case, val=images[:count], known=images[count:])


def drawn(case: Subject, method: str) -> Draw:
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        detector = OODDetector(case.model, method).fit(case.val)
        paths = [Path(folder) / f"{kind}.onnx" for kind in ("float", "int8")]
        detector.export(paths[0])
        print(f"{case.name}: {detector.export(paths[1], int8=case.val)}", flush=True)
        before, after = (measured(path, case) for path in paths)
        some = case.known[: case.batch]
        times = interleaved({"int8": lambda: after.exported(some), "float": lambda: before.exported(some)}, repeats=7)
    return Draw(before, after, times["int8"].over(times["float"]).median)


def line(name: str, images: int, test: int, draws: int, method: str) -> str:
    """One row of the table: means over the draws."""
    whole = subject(name, test, images)
    began = time.perf_counter()
    found = [drawn(redrawn(whole, seed), method) for seed in range(draws)]
    before, after = ([getattr(one, kind) for one in found] for kind in ("before", "after"))
    aurocs = [mean(one.auroc for one in files) for files in (before, after)]
    flagged = [mean(one.flagged for one in files) for files in (before, after)]
    low, high = (100 * end for end in after[0].exported.record["calibration"]["range"])
    lost = aurocs[0] - aurocs[1]
    spread = f"one detector: {low:.1f} to {high:.1f}"
    if draws > 1:
        spread = f"+- {stdev(one.flagged for one in after) / draws**0.5:.1f}; {spread}"
    cells = (
        name,
        f"{len(whole.val)}",
        f"{len(whole.known)} + {len(whole.unknown)}",
        f"{draws}",
        f"{aurocs[0]:.2f}",
        f"{aurocs[1]:.2f}",
        f"{lost:+.2f}{'' if lost <= _MOST_LOSS else ' (too much)'}",
        f"{flagged[0]:.1f}",
        f"{flagged[1]:.1f} ({spread})",
        f"{before[0].megabytes:.1f} -> {after[0].megabytes:.1f}",
        f"{median(one.time for one in found):.2f}",
    )
    print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--images", type=int, default=300, help="in-distribution images to fit, quantise and calibrate")
    parser.add_argument("--test", type=int, default=250, help="fresh ID images, and OOD images, to test on")
    parser.add_argument("--draws", type=int, default=1, help="draws of the ID images to fit on")
    parser.add_argument("--method", default="combined")
    given = parser.parse_args()
    heads = ["network", "images", "tested on", "draws", "AUROC float", "AUROC int8", "loss", "flagged float, %"]
    heads += ["flagged int8, % (error of the mean; 90 % of detectors)", "file, MB", "time int8 / float"]
    lines = [line(name, given.images, given.test, given.draws, given.method) for name in given.networks]
    print(f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines, sep="\n")


if __name__ == "__main__":
    main()
