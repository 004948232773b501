"""What AdaSCALE costs: the variable percentile against the fixed one, and a whole score by the choice of pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from adascale import detectors
from adascale.core.errors import InputError
from adascale.core.timing import Timing, interleaved
from adascale.core.types import Head, Outputs, Pixels
from adascale.extraction.extract import extract_batch
from adascale.images.loader import load_batches
from adascale.paper import published
from adascale.paper.studies.base import Block
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.paper.studies.study import TEXTS, Study, series_of
from adascale.report.document import Cell, Chart, Column, Line

SIZES = (128, 512, 1024, 2048, 3024)
BATCHES = (1, 256)
PIXELS: tuple[Pixels, ...] = ("random", "trivial")
_CLASSES = 1000
_REFERENCE = 1000  # ID samples behind the eCDF
_IMAGES = 8  # in a timed pass through the network
_PARTS = {"scale": "Scaling alone", "score": "With head and logsumexp"}


@dataclass(frozen=True)
class Latency(Study):
    """repeats: turns of each timing; calls that include the network take a fifth as many."""

    uses_given: ClassVar[bool] = False
    repeats: int = 41

    @property
    def _network_repeats(self) -> int:
        return max(3, self.repeats // 5)

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        for batch in BATCHES:
            yield _by_size(batch, experiment.seed, self.repeats)
        for subject in experiment.subjects:
            yield _whole_score(experiment, subject, self._network_repeats)

    def notes(self, experiment: Experiment) -> list[str]:
        return [
            f"Median ± half the middle half of {self.repeats} turns (through the network {self._network_repeats}); "
            "the calls take turns, and ratios are taken turn by turn. Fixed: SCALE as its authors compute it (copy, "
            "top-k, zero and scatter, sums, exp, product). Variable: AdaSCALE-A from the activations of the clean and "
            f"the perturbed image to the scale e^r, or to the score. {_CLASSES} classes, eCDF over {_REFERENCE} "
            f"samples; threads: {torch.get_num_threads()}. The paper's times are of another machine: compare ratios."
        ]

    def parameters(self, experiment: Experiment, subject: Subject) -> dict[str, Any]:
        """What was timed: AdaSCALE-A with its defaults, whatever the parameters for the network."""
        timed = {"after the network": detectors.AdaSCALE_A(), **_by_pixels()}
        parameters = {name: method.parameters for name, method in timed.items()}
        return {"threads": torch.get_num_threads(), "repeats": self.repeats, "timed": parameters}


def _by_size(batch: int, seed: int, repeats: int) -> Block:
    """The arithmetic after the network, by the number of activations D."""
    lines = [Line(f"D={size}", _cells(size, batch, seed, repeats)) for size in SIZES]
    units = {"fixed": ("fixed", "µs"), "variable": ("variable", "µs"), "ratio": ("variable / fixed", "ratio")}
    labels, columns, charts = [line.label for line in lines], [], []
    for part, group in _PARTS.items():
        columns += [Column(f"{part}.{key}", title, group, unit=unit) for key, (title, unit) in units.items()]
        series = series_of("ratio", [line.cells[f"{part}.ratio"] for line in lines])
        charts.append(Chart("lines", f"{group}, batch {batch}", series, labels, y="variable / fixed"))
    return Block(f"{batch} image{'s' * (batch > 1)} a call", columns, lines, charts)


def _cells(size: int, batch: int, seed: int, repeats: int) -> dict[str, Cell]:
    """The paper's ratios are of one image and of scaling alone."""
    times, cells = postprocessing(size, batch, seed, repeats), {}
    for part in _PARTS:
        fixed, variable = times[f"{part}.fixed"], times[f"{part}.variable"]
        known = published.other("latency", None, "ratio", f"D={size}") if (batch, part) == (1, "scale") else None
        cells[f"{part}.fixed"] = _cell(fixed, 1e6)
        cells[f"{part}.variable"] = _cell(variable, 1e6)
        cells[f"{part}.ratio"] = _cell(variable.over(fixed), 1, known)
    return cells


def _cell(timing: Timing, unit: float, known: float | None = None) -> Cell:
    return Cell(unit * timing.median, known, unit * timing.spread)


def postprocessing(size: int, batch: int, seed: int, repeats: int, classes: int = _CLASSES) -> dict[str, Timing]:
    """The times on random non-negative activations: none of these procedures depends on what they mean."""
    generator = torch.Generator().manual_seed(seed)
    head = Head(torch.randn(classes, size, generator=generator) / size, torch.zeros(classes))
    method = detectors.AdaSCALE_A()

    def outputs(rows: int) -> Outputs:
        clean, moved = torch.randn(2, rows, size, generator=generator).relu()
        return Outputs(head(clean).float(), clean, {method.view: moved})

    method.fit(outputs(_REFERENCE), head)
    samples = outputs(batch)
    calls = {
        "scale.fixed": lambda: scale_of_authors(samples.features),
        "scale.variable": lambda: _scaled(method, samples),
        "score.fixed": lambda: scale_score_of_authors(samples.features, head),
        "score.variable": lambda: method.score(samples),
    }
    with torch.inference_mode():
        return interleaved(calls, repeats)


def _scaled(method: detectors.AdaSCALE_A, samples: Outputs) -> Tensor:
    """The activations times ``e^r``: what SCALE's authors compute too, though our score does not need them."""
    scale = torch.from_numpy(method.scale_of(method.ratios(samples).numpy()))
    return samples.features * scale.to(samples.features.dtype)[:, None]


def scale_of_authors(features: Tensor, percentile: float = 85) -> Tensor:
    """SCALE (Xu et al., 2024) in the steps of its authors' code and in the dtype of the features (N, D).

    A row becomes ``a exp(s1 / s2)``: ``s1`` is its sum, ``s2`` the sum of its k largest values.
    """
    kept, size = features.clone(), features.shape[1]
    total = kept.sum(1)
    values, places = kept.topk(size - round(size * percentile / 100), dim=1)
    kept.zero_().scatter_(1, places, values)
    return features * (total / kept.sum(1)).exp()[:, None]


def scale_score_of_authors(features: Tensor, head: Head, percentile: float = 85) -> Tensor:
    """The score that follows, higher = more OOD: ``S = -logsumexp(W (a exp(r)) + b)``."""
    scaled = scale_of_authors(features, percentile)
    return -F.linear(scaled, head.weight, head.bias).logsumexp(1)


def _by_pixels() -> dict[str, detectors.AdaSCALE_A]:
    return {pixels: detectors.AdaSCALE_A(pixels=pixels) for pixels in PIXELS}


def _whole_score(experiment: Experiment, subject: Subject, repeats: int) -> Block:
    """The cost from images to scores in plain forward passes, for each choice of pixels."""
    times, images = _timed_passes(experiment, subject, repeats)
    cost, own = Column("forwards", "total cost", unit="plain forwards"), Column("ms", "time an image", unit="ms")
    lines = []
    for name, timing in times.items():
        ratio, known = timing.over(times["plain forward"]), published.other("cost", None, name, "forwards")
        lines.append(Line(name, {cost.key: _cell(ratio, 1, known), own.key: _cell(timing, 1e3 / images)}))
    series = series_of("total cost", [replace(line.cells[cost.key], spread=None) for line in lines])
    chart = Chart("dots", "Total cost", series, list(times), y="plain forward passes")
    return Block(f"{subject.name}: a score of {images} images", [cost, own], lines, [chart])


def _timed_passes(experiment: Experiment, subject: Subject, repeats: int) -> tuple[dict[str, Timing], int]:
    """The times of the plain forward pass and of a score for each choice of pixels, and the images in each pass."""
    network, known = subject.network.classifier, experiment.images.id
    batch = next((b.images for b in load_batches(known, subject.network.preprocess, _IMAGES) if len(b.images)), None)
    if batch is None:
        raise InputError(f"{subject.name}: none of the {len(known)} ID images can be read.")
    images = network.prepare(batch)

    def plain() -> object:
        with torch.inference_mode():
            return network.model(images)

    def score(method: detectors.AdaSCALE_A) -> Callable[[], object]:
        method.fit(extract_batch(network, images, method.wants), network.head)
        return lambda: method.score(extract_batch(network, images, method.wants))

    calls = {"plain forward": plain, **{pixels: score(method) for pixels, method in _by_pixels().items()}}
    return interleaved(calls, repeats), len(images)


STUDIES: tuple[Study, ...] = (Latency(*TEXTS["latency"]),)
