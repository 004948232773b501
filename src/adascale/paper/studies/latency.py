"""What AdaSCALE costs: the variable percentile against the fixed one, and a whole score by the choice of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from adascale import detectors
from adascale.core.errors import InputError
from adascale.core.timing import Timing, interleaved
from adascale.core.types import Head, Outputs, Pixels
from adascale.extraction.extract import extract_batch
from adascale.images.loader import load_batches
from adascale.paper import figures as paper
from adascale.paper.studies.authors_scale import scale_of_authors, scale_score_of_authors
from adascale.paper.studies.base import Block, Cell, Chart, Column, Line, Series
from adascale.paper.studies.setting import Setting, Study, Subject

SIZES = (128, 512, 1024, 2048, 3024)
BATCHES = (1, 256)
PIXELS: tuple[Pixels, ...] = ("random", "trivial")
_CLASSES = 1000
_REFERENCE = 1000  # ID samples behind the eCDF
_IMAGES = 8  # in a timed pass through the network
_PARTS = {"scale": "Scaling alone", "score": "With head and logsumexp"}


@dataclass(frozen=True)
class Latency(Study):
    """repeats: turns of each timing; those through the network are a fifth as many."""

    uses_given: ClassVar[bool] = False
    repeats: int = 41

    @property
    def _passes(self) -> int:
        return max(3, self.repeats // 5)

    def blocks(self, setting: Setting) -> Iterator[Block]:
        for batch in BATCHES:
            yield self._by_size(batch, setting.seed)
        for subject in setting.subjects:
            yield self._total(setting, subject)

    def _by_size(self, batch: int, seed: int) -> Block:
        lines = [Line(f"D={size}", _cells(size, batch, seed, self.repeats)) for size in SIZES]
        columns = [column for part, title in _PARTS.items() for column in _columns(part, title)]
        charts = [_chart(part, title, batch, lines) for part, title in _PARTS.items()]
        return Block(f"{batch} image{'s' * (batch > 1)} a call", columns, lines, charts)

    def _total(self, setting: Setting, subject: Subject) -> Block:
        times, images = _timed_passes(setting, subject, self._passes)
        column = Column("forwards", "total cost", unit="plain forwards")
        milliseconds = Column("ms", "time an image", unit="ms")
        lines = []
        for name, time in times.items():
            ratio = time.over(times["plain forward"])
            known = paper.other("cost", None, name, "forwards")
            cost = Cell(ratio.median, known, ratio.spread)
            own = Cell(1e3 * time.median / images, spread=1e3 * time.spread / images)
            lines.append(Line(name, {column.key: cost, milliseconds.key: own}))
        costs = [line.cells[column.key] for line in lines]
        series = [Series("total cost", [cell.measured for cell in costs])]
        series.append(Series("total cost", [cell.paper for cell in costs], paper=True))
        labels = [line.label for line in lines]
        chart = Chart("dots", "Total cost", series, labels, y="plain forward passes")
        return Block(f"{subject.name}: a score of {images} images", [column, milliseconds], lines, [chart])

    def notes(self, setting: Setting) -> list[str]:
        return [
            f"Median ± half the middle half of {self.repeats} turns (through the network {self._passes}); "
            "the calls take turns, and ratios are taken turn by turn. Fixed: SCALE as its authors compute it (copy, "
            "top-k, zero and scatter, sums, exp, product). Variable: AdaSCALE-A from the activations of the clean and "
            f"the perturbed image to the scale e^r, or to the score. {_CLASSES} classes, eCDF over {_REFERENCE} "
            f"samples; threads: {torch.get_num_threads()}. The paper's times are of another machine: compare ratios."
        ]

    def settings(self, setting: Setting, subject: Subject) -> dict[str, Any]:
        """What was timed: AdaSCALE-A with its defaults, whatever the network's setting."""
        timed = {"after the network": detectors.AdaSCALE_A(), **_through_the_network()}
        parameters = {name: method.parameters for name, method in timed.items()}
        return {"threads": torch.get_num_threads(), "repeats": self.repeats, "timed": parameters}


def _columns(part: str, title: str) -> list[Column]:
    return [
        Column(f"{part}.fixed", "fixed", title, unit="µs"),
        Column(f"{part}.variable", "variable", title, unit="µs"),
        Column(f"{part}.ratio", "variable / fixed", title, unit="ratio"),
    ]


def _cells(size: int, batch: int, seed: int, repeats: int) -> dict[str, Cell]:
    """The paper's ratios are of one image and of scaling alone."""
    times, cells = postprocessing(size, batch, seed, repeats), {}
    for part in _PARTS:
        fixed, variable = times[f"{part}.fixed"], times[f"{part}.variable"]
        ratio, compared = variable.over(fixed), batch == 1 and part == "scale"
        known = paper.other("latency", None, "ratio", f"D={size}") if compared else None
        cells[f"{part}.fixed"] = Cell(1e6 * fixed.median, spread=1e6 * fixed.spread)
        cells[f"{part}.variable"] = Cell(1e6 * variable.median, spread=1e6 * variable.spread)
        cells[f"{part}.ratio"] = Cell(ratio.median, known, ratio.spread)
    return cells


def postprocessing(size: int, batch: int, seed: int, repeats: int, classes: int = _CLASSES) -> dict[str, Timing]:
    """Random non-negative activations: none of these procedures looks at what they mean."""
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


def _chart(part: str, title: str, batch: int, lines: list[Line]) -> Chart:
    cells = [line.cells[f"{part}.ratio"] for line in lines]
    series = [Series("ratio", [cell.measured for cell in cells], spread=[cell.spread or 0.0 for cell in cells])]
    if any(cell.paper is not None for cell in cells):
        series.append(Series("ratio", [cell.paper for cell in cells], paper=True))
    return Chart("lines", f"{title}, batch {batch}", series, [line.label for line in lines], y="variable / fixed")


def _through_the_network() -> dict[str, detectors.AdaSCALE_A]:
    return {pixels: detectors.AdaSCALE_A(pixels=pixels) for pixels in PIXELS}


def _timed_passes(setting: Setting, subject: Subject, repeats: int) -> tuple[dict[str, Timing], int]:
    """The plain forward pass, and for each choice of pixels all from images to scores."""
    network, known = subject.network.classifier, setting.images.id
    batch = next((b.images for b in load_batches(known, subject.network.preprocess, _IMAGES) if len(b.images)), None)
    if batch is None:
        raise InputError(f"{subject.name}: none of the {len(known)} ID images can be read.")
    images = network.prepare(batch)
    methods = _through_the_network()
    for method in methods.values():
        outputs = extract_batch(network, images, method.views)
        method.fit(outputs, network.head)

    def plain() -> object:
        with torch.inference_mode():
            return network.model(images)

    calls: dict[str, Any] = {"plain forward": plain}
    for pixels, method in methods.items():
        calls[pixels] = lambda method=method: method.score(extract_batch(network, images, method.views))
    return interleaved(calls, repeats), len(images)


STUDIES: tuple[Study, ...] = (
    Latency(
        "latency",
        "What it costs",
        "latency, and the text for the total cost",
        "How much slower is a percentile for each sample than a fixed one, and how many plain passes is a score?",
        f"timed ones alone, of {_IMAGES} images",
    ),
)
