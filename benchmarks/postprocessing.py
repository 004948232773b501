"""(d) AdaSCALE's post-processing against SCALE's fixed percentile, (h) growth with images and D."""

from __future__ import annotations

from collections.abc import Iterator

from adascale import View, detectors
from adascale.core.timing import interleaved
from adascale.paper.studies.latency import SIZES, postprocessing
from benchmarks.detectors import made_up
from benchmarks.measured import Ratio, ratio


def against_scale(repeats: int) -> Iterator[Ratio]:
    """From activations to the score (10 classes: the head costs SCALE least), which is what users pay, and to the
    scaled activations, as in the paper's table, though our score never needs them.
    """
    for batch in (1, 256):
        for size in SIZES:
            times = postprocessing(size, batch, 0, repeats, classes=10)
            for part, what, most in (("score", "to the score", 2.0), ("scale", "to the scaled activations", None)):
                found = times[f"{part}.variable"].over(times[f"{part}.fixed"])
                yield ratio("d", f"AdaSCALE / SCALE of its authors, {what}", f"D={size}, batch {batch}", found, most)


def growth(repeats: int) -> Iterator[Ratio]:
    """Twice and four times the images or D against once."""
    method = detectors.AdaSCALE_A()
    for what, sizes in (
        ("images", ((1_000, 1_024), (2_000, 1_024), (4_000, 1_024))),
        ("D", ((1_000, 512), (1_000, 1_024), (1_000, 2_048))),
    ):
        cases = {}
        for factor, (n, size) in zip((1, 2, 4), sizes, strict=True):
            outputs, head = made_up(n, size, 100, (View(),))
            fitted = detectors.AdaSCALE_A().fit(outputs, head)
            cases[str(factor)] = lambda fitted=fitted, outputs=outputs: fitted.score(outputs)
        times = interleaved(cases, repeats)
        for more in ("2", "4"):
            yield ratio("h", f"{method.name} score, {more} x the {what}", "made-up", times[more].over(times["1"]))
