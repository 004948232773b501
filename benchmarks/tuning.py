"""Does tuning without OOD data find good percentiles? The table of docs/tuning.md.

    ADASCALE_DATA=DIR python -m benchmarks.tuning [NETWORK ...] [--cache DIR] [--pixels trivial]

For each network and variant: the mean of near- and far-OOD AUROC (percent) at the default 60/85, at the pair that
`fit` would choose from ID images alone, at the best pair of the paper's one-knob rule in hindsight, and at the best of
all 45 pairs in hindsight. Suites: examples/suites. Extracted outputs are kept in the cache folder, shared with
`adascale bench`.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from adascale import Classifier, InputError, detectors, load_network, metrics
from adascale.bench.run import Entry, Job, Network, tested
from adascale.bench.suites import load_suite, open_suite
from adascale.core.folders import cache_folder
from adascale.decision.tuning import GRIDS, grid

SUITES = Path(__file__).parents[1] / "examples" / "suites"
NETWORKS = ("cifar10_densenet101", "cifar100_densenet101", "imagenet_resnet50")


def job_for(name: str, entries: list[Entry], cache: Path) -> Job:
    """A network of ADASCALE_DATA on its suite."""
    images = open_suite(load_suite(str(SUITES / f"{name}.toml")))
    model, preprocess = load_network(f"{os.environ['ADASCALE_DATA']}/networks.py:{name}")
    if preprocess is None:
        raise InputError(f"{name} comes without preprocessing.")
    return Job(Network(name, Classifier(model), preprocess), images, entries, cache)


def hindsight(job: Job, method: detectors.Detector, points: list[Any]) -> list[float]:
    """The mean of near- and far-OOD AUROC at each point, in percent, fitted on all validation images."""
    sets = {
        name: (kind, job.extracted(name, found, method.views)) for name, (kind, found) in tested(job.images).items()
    }
    outputs = [found.load() for _, found in sets.values()]
    kinds = [kind for kind, _ in sets.values()]
    val = job.extracted("val", job.images.val, method.views).load()
    results = [0.0] * len(points)
    for i, scores in method.sweep(points, val, job.network.classifier.head, outputs):
        if scores is not None:
            sides = {
                side: [metrics.auroc(scores[0], part) for part, kind in zip(scores, kinds, strict=True) if kind == side]
                for side in ("near", "far")
            }
            results[i] = 100 * sum(sum(values) / len(values) for values in sides.values()) / len(sides)
    return results


def line(name: str, variant: str, cache: Path, **parameters: Any) -> str:
    method = detectors.get(variant)(**parameters)
    job = job_for(name, [Entry(variant, method)], cache)
    points = [dict(point) for point in grid(method)]
    tuning = job.tune(method, points, "self")
    found = hindsight(job, method, points)
    knob = [found[points.index(point)] for point in GRIDS["one-knob"]]
    best, chosen, default = max(found), found[points.index(dict(tuning.chosen))], found[points.index(DEFAULT)]
    pairs = ["/".join(map(str, point.values())) for point in (tuning.chosen, points[found.index(best)])]
    cells = (
        name,
        variant,
        f"{default:.2f}",
        f"{chosen:.2f} ({pairs[0]})",
        f"{max(knob):.2f}",
        f"{best:.2f} ({pairs[1]})",
    )
    return f"| {' | '.join(cells)} | {chosen - best:+.2f} | {chosen - default:+.2f} |"


DEFAULT = {"p_min": 60, "p_max": 85}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--cache", type=Path, default=cache_folder())
    parser.add_argument("--pixels", default="trivial", choices=("trivial", "random"))
    arguments = parser.parse_args()
    titles = "network", "method", "default 60/85", "chosen from ID images", "one knob, best", "best pair"
    print(f"| {' | '.join(titles)} | to best | to default |\n|---|---|---|---|---|---|---|---|")
    for name in arguments.networks:
        for variant in ("adascale_a", "adascale_l"):
            print(line(name, variant, arguments.cache, pixels=arguments.pixels), flush=True)


if __name__ == "__main__":
    main()
