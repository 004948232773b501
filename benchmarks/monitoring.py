"""How often monitoring is wrong on ID images, and how soon it finds others: the tables of docs/monitoring.md.

    [ADASCALE_DATA=DIR] python -m benchmarks.monitoring [--streams 1000] [--images 5000]

Simulated streams with 1,000 calibration images each: scores are normal, normal and rounded to halves (tied), or 0, 1
and 2 (discrete); classes are ten, equally frequent; OOD images score 3 higher (AUROC 98.3 %). With ADASCALE_DATA also
the scores of cifar10_resnet20 with `mls` on CIFAR-10's test images, each stream in a random order of its own, and
textures as OOD images. Exit code 1 if more streams raise a false alarm than delta allows.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from adascale import OODDetector, Preprocess, load_network
from adascale.images.sources import find_images
from adascale.maths.binomial import at_most
from benchmarks.streams import alarms, class_alarms, p_values

CALIBRATION, DELTA, RUN_LENGTH, CHUNK = 1000, 0.01, 10_000, 250
SHIFT = 3.0  # of OOD images, in standard deviations
KS_LIMIT, KS_EVERY = 1.6276, 100  # of sqrt(n) D at 1 %, and images between two tests
Scores = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


@dataclass(frozen=True)
class Source:
    """Where scores come from. known, unknown: scores of ID and of OOD images (streams, images)."""

    name: str
    known: Scores
    unknown: Scores | None = None


def simulated() -> list[Source]:
    return [
        Source("continuous", lambda random, size: random.normal(size=size), shifted),
        Source("tied", lambda random, size: np.round(2 * random.normal(size=size)) / 2),
        Source("discrete", lambda random, size: random.integers(0, 3, size).astype(float)),
    ]


def shifted(random: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return random.normal(SHIFT, size=size)


def real(data: str, most: int = 5000) -> Source:
    """Streams of real scores, each image at most once."""
    model, preprocess = load_network(f"{data}/networks.py:cifar10_resnet20")
    assert isinstance(preprocess, Preprocess)
    detector = OODDetector(model, "mls", preprocess=preprocess)
    training = find_images(f"{data}/cifar/cifar10_train.npz")
    detector.fit(training.subset(range(200)))
    known, unknown = (
        detector.score(found.subset(range(min(most, len(found))))).numpy()
        for found in (find_images(f"{data}/cifar/{name}.npz") for name in ("cifar10_test", "textures32"))
    )

    def drawn(scores: np.ndarray) -> Scores:
        def draw(random: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
            images = min(size[1], len(scores))
            return np.stack([random.permutation(scores)[:images] for _ in range(size[0])])

        return draw

    return Source("CIFAR-10, real", drawn(known), drawn(unknown))


def chunks(source: Source, streams: int, images: int, seed: int) -> Iterator[tuple[np.random.Generator, np.ndarray]]:
    """Scores of calibration and stream together, some streams at a time."""
    for part in range(0, streams, CHUNK):
        random = np.random.default_rng([seed, part])
        yield random, source.known(random, (min(CHUNK, streams - part), CALIBRATION + images))


def false_alarms(source: Source, streams: int, images: int, seed: int = 0) -> dict[str, int]:
    """How many streams of ID images raise an alarm of each kind: those of a `Monitor`, any of the four."""
    ever = continuing = 0
    for random, scores in chunks(source, streams, images, seed):
        calibration, rest = scores[:, :CALIBRATION], scores[:, CALIBRATION:]
        found = alarms(p_values(calibration, rest, 1 - random.random(rest.shape)), DELTA, RUN_LENGTH)
        drawn = random.integers(0, 10, scores.shape).astype(float)
        mix = p_values(drawn[:, :CALIBRATION], drawn[:, CALIBRATION:], 1 - random.random(rest.shape))
        others = class_alarms(mix, DELTA, RUN_LENGTH)
        ever += int((found.ever.any(1) | others.ever.any(1)).sum())
        continuing += int((found.continuing.any(1) | others.continuing.any(1)).sum())
    return {"ever": ever, "continuing": continuing}


def naive_alarms(source: Source, streams: int, images: int, seed: int = 0) -> dict[str, int]:
    """The same for tests of the detector's own p-values, which compare each image with the calibration images alone."""
    wrong = {"Kolmogorov-Smirnov every 100 images": 0, "histogram martingale": 0, "power martingale": 0}
    for random, scores in chunks(source, streams, images, seed):
        calibration, rest = np.sort(scores[:, :CALIBRATION], 1), scores[:, CALIBRATION:]
        above = np.stack([CALIBRATION - c.searchsorted(r, "right") for c, r in zip(calibration, rest, strict=True)])
        p = (above + 1 - random.random(rest.shape)) / (CALIBRATION + 1)
        wrong["Kolmogorov-Smirnov every 100 images"] += int(_ks(p).any(1).sum())
        wrong["histogram martingale"] += int(class_alarms(p, DELTA, RUN_LENGTH, 1).ever.any(1).sum())
        wrong["power martingale"] += int((alarms(p, DELTA, RUN_LENGTH, 1).ever[:, 0] > 0).sum())
    return wrong


def _ks(p: np.ndarray) -> np.ndarray:
    """Whether each test of all p-values so far rejects that they are uniform (streams, tests)."""
    found = []
    for n in range(KS_EVERY, p.shape[1] + 1, KS_EVERY):
        ordered, steps = np.sort(p[:, :n], 1), np.arange(n + 1) / n
        distance = np.maximum((steps[1:] - ordered).max(1), (ordered - steps[:-1]).max(1))
        found.append(np.sqrt(n) * distance > KS_LIMIT)
    return np.stack(found, 1)


def delays(source: Source, share: float, before: int, streams: int, most: int, seed: int = 1) -> np.ndarray:
    """Images from the change to the alarm ``unusual (continuing)``: infinity if there is none, NaN if it came before.

    before: ID images before the change.
    """
    assert source.unknown is not None
    found = []
    for random, scores in chunks(source, streams, before + most, seed):
        images = scores.shape[1] - CALIBRATION
        changed = (random.random((len(scores), images)) < share) & (np.arange(images) >= before)
        outliers = source.unknown(random, (len(scores), images))
        place = np.minimum(np.cumsum(changed, 1), outliers.shape[1]) - 1
        mixed = np.where(changed, np.take_along_axis(outliers, np.maximum(place, 0), 1), scores[:, CALIBRATION:])
        p = p_values(scores[:, :CALIBRATION], mixed, 1 - random.random(mixed.shape))
        raised = alarms(p, DELTA, RUN_LENGTH).continuing[:, 0].astype(float)
        delay = np.where(raised > 0, raised - before, np.inf)
        found.append(np.where(delay > 0, delay, np.nan))
    return np.concatenate(found)


def most_allowed(streams: int, share: float) -> int:
    """The most streams that may raise a false alarm if each does with chance ``share``: exceeded once in 1,000 runs."""
    return next(k for k in range(streams + 1) if at_most(k, streams, share) >= 0.999)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--images", type=int, default=5000)
    given = parser.parse_args()
    sources, kept = simulated(), True
    if data := os.environ.get("ADASCALE_DATA"):
        sources.append(real(data))
    limit = most_allowed(given.streams, DELTA)
    print(
        f"False alarms in {given.streams} streams of {given.images} ID images, delta {DELTA}, run length {RUN_LENGTH}\n"
    )
    print("| test | scores | streams with a false alarm | promised |\n|---|---|---|---|")
    for name, wrong in naive_alarms(sources[0], given.streams, given.images).items():
        print(f"| {name} of the detector's p-values | continuous | {wrong / given.streams:.1%} | 1 % |", flush=True)
    for source in sources:
        wrong_of = false_alarms(source, given.streams, given.images)
        kept &= wrong_of["ever"] <= limit
        within = min(1.0, given.images / RUN_LENGTH)
        print(f"| `Monitor`, ever | {source.name} | {wrong_of['ever'] / given.streams:.1%} | {DELTA:.0%} |")
        share = wrong_of["continuing"] / given.streams
        print(f"| `Monitor`, continuing | {source.name} | {share:.1%} | {within:.0%} |", flush=True)
    print("\n| scores | OOD share | ID images before | median images to the alarm | found |\n|---|---|---|---|---|")
    for source in (one for one in sources if one.unknown is not None):
        for share, most in ((0.05, 3000), (0.2, 500), (0.5, 200)):
            for before in (0, 1000):
                found = delays(source, share, before, given.streams // 4, most)
                found = found[~np.isnan(found)]
                middle, caught = np.median(found), np.isfinite(found).mean()
                time = f"{middle:.0f}" if np.isfinite(middle) else f"more than {most:,}"
                print(f"| {source.name} | {share:.0%} | {before} | {time} | {caught:.0%} |", flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
