"""The page of a scored folder: what was flagged, the scores beside those of calibration, the most unusual images."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from PIL import Image

from adascale.core.errors import InputError
from adascale.decision.ood_detector import OODDetector
from adascale.images.sources import ImageSet
from adascale.maths.binomial import share_interval
from adascale.maths.conformal import Calibration
from adascale.maths.promise import in_words
from adascale.report import html
from adascale.report.charts import COLOURS, ID_COLOUR
from adascale.report.document import DASH, Cell, Chart, Column, Line, Series, Style, Table
from adascale.showing.explain_charts import SIZE, score_chart
from adascale.storage.atomic import write_text
from adascale.storage.rows import Row

PICTURES = 60  # the most that a page shows, so that it stays small
_FAILURES, _CLASSES, _BINS = 20, 40, 20


class Shown(NamedTuple):
    """An image of the gallery. key: sorts by p-value, then by the score, the highest first, then by place."""

    key: tuple[float, float, int]
    row: Row

    @property
    def place(self) -> int:
        return self.key[2]


@dataclass(eq=False)
class Scored:
    """What the page needs of the rows, kept as they come: numbers of all images, and the rows of the most unusual."""

    scores: array[float] = field(default_factory=lambda: array("d"))
    p_values: array[float] = field(default_factory=lambda: array("d"))
    images: int = 0
    flagged: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    failed: int = 0
    by_class: dict[str, list[tuple[bool, float]]] = field(default_factory=dict)
    top: list[Shown] = field(default_factory=list)

    def add(self, rows: Iterable[Row]) -> None:
        """Take the next rows of ``adascale score``, in order."""
        new = []
        for place, row in enumerate(rows, start=self.images + self.failed):
            if row["prediction"] is None:
                self.failed += 1
                if len(self.failures) < _FAILURES:
                    self.failures[str(row["image"])] = str(row["error"])
                continue
            score = float("inf") if row["score"] is None else float(row["score"])
            p, flagged = float(row["p_value"]), bool(row["is_ood"])
            self.images += 1
            self.flagged += flagged
            self.scores.append(score)
            self.p_values.append(p)
            label = str(row["class"] if row.get("class") is not None else row["prediction"])
            self.by_class.setdefault(label, []).append((flagged, p))
            new.append(Shown((p, -score, place), row))
        self.top = heapq.nsmallest(PICTURES, [*self.top, *new], key=lambda one: one.key)


def write_page(scored: Scored, images: ImageSet, detector: OODDetector, path: Path | str, source: str) -> None:
    """Write the page: whole or not at all. source: where the images come from, in words."""
    write_text(Path(path), score_page(scored, images, detector, source))


def score_page(scored: Scored, images: ImageSet, detector: OODDetector, source: str) -> str:
    """The page as text. It needs ``adascale[report]``."""
    calibration = detector.calibration
    if calibration is None or not scored.images:
        raise InputError("There is nothing to show: no image could be scored.")
    scores = torch.tensor(scored.scores, dtype=torch.float64)
    return html.page(
        "scores.html", source=source, method=f"{detector.method.name}: {detector.setting}", scored=scored,
        guarantee=detector.guarantee,
        verdict=verdict(scored, detector), share=scored.flagged / scored.images, cards=cards(scored, calibration),
        scores=score_chart(calibration, others=scores), p_values=p_value_chart(scored), classes=class_table(scored),
        shown=[(one.row, _opened(images, one.place)) for one in scored.top],
    )  # fmt: skip


def verdict(scored: Scored, detector: OODDetector) -> str:
    """Whether in-distribution images alone would explain the share that is flagged, in a sentence."""
    calibration = detector.calibration
    assert calibration is not None
    low, high = share_interval(scored.flagged, scored.images)
    least, most = calibration.rate_range
    usual = f"detectors like this one flag {100 * least:.1f} to {100 * most:.1f} % of in-distribution images"
    if low > most:
        return f"More is flagged than in-distribution images explain: {usual}. Some of these images are unlike them."
    if high < least:
        return f"Less is flagged than one expects: {usual}. Were the calibration images among these?"
    return f"In-distribution images alone could explain it: {usual}."


def cards(scored: Scored, calibration: Calibration) -> list[dict[str, str]]:
    """What is flagged, what was promised, and the most unusual image."""
    low, high = share_interval(scored.flagged, scored.images)
    first = scored.top[0]
    found = [
        ("Flagged", f"{100 * scored.flagged / scored.images:.1f} %",
         f"{scored.flagged:,} of {scored.images:,}; 95 % interval {100 * low:.1f} to {100 * high:.1f} %"),
        ("Promised", f"at most {in_words(calibration.promised, calibration.confidence)}",
         "of in-distribution images are flagged" + ("" if calibration.confidence else ", on average")),
        ("Threshold", f"{calibration.threshold:.4g}",
         f"from {len(calibration.scores):,} calibration images; a p-value up to {calibration.level:.4g} is flagged"),
        ("Most unusual", f"p = {first.row['p_value']:.3g}", str(first.row["image"])),
    ]  # fmt: skip
    return [{"question": question, "answer": answer, "text": text} for question, answer, text in found]


def p_value_chart(scored: Scored) -> Chart:
    """The histogram of the p-values: flat for in-distribution images, high on the left if others are among them."""
    edges = torch.linspace(0, 1, _BINS + 1, dtype=torch.float64)
    counts = torch.histogram(torch.tensor(scored.p_values, dtype=torch.float64), edges).hist / scored.images
    flat = [1 / _BINS] * 2
    series = [
        Series("scored images", counts.tolist(), edges.tolist(), style=Style(COLOURS[0])),
        Series("in-distribution alone", [1 / _BINS] * _BINS, edges.tolist(), style=Style(ID_COLOUR)),
    ]
    top = 1.12 * max(float(counts.max()), *flat)
    return Chart(
        "steps", "P-values", series, x="p-value (left: more out-of-distribution)", y="share of images",
        x_range=(0, 1), y_range=(0, top), size=SIZE,
    )  # fmt: skip


def class_table(scored: Scored) -> Table:
    """What is flagged of each predicted class; the classes with the most flagged images first."""
    columns = [
        Column("images", "Images"), Column("flagged", "Flagged"), Column("share", "Share flagged"),
        Column("interval", "95 % interval", hint="exact (Clopper and Pearson)"), Column("median", "Median p-value"),
    ]  # fmt: skip
    found = {label: _class_cells(entries) for label, entries in scored.by_class.items()}
    order = sorted(found, key=lambda label: (-(found[label]["flagged"].measured or 0), label))
    note = f"The first {_CLASSES} of {len(order)} classes." if len(order) > _CLASSES else ""
    lines = [Line(label, found[label]) for label in order[:_CLASSES]]
    return Table("Predicted classes", columns, lines, head="predicted class", note=note)


def _class_cells(entries: list[tuple[bool, float]]) -> Mapping[str, Cell]:
    count, total = sum(flagged for flagged, _ in entries), len(entries)
    low, high = share_interval(count, total)
    return {
        "images": Cell(total, text=f"{total:,}"),
        "flagged": Cell(count, text=f"{count:,}"),
        "share": Cell(100 * count / total),
        "interval": Cell(100 * low, text=f"{100 * low:.1f}{DASH}{100 * high:.1f}"),
        "median": Cell(value := median(p for _, p in entries), text=f"{value:.3f}"),
    }


def _opened(images: ImageSet, place: int) -> Image.Image | None:
    """The picture; None if it cannot be read any more."""
    try:
        return images.open(place, html.THUMBNAIL)
    except (OSError, ValueError, InputError):
        return None
