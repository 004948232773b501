"""What notebooks show of verdicts, outputs, detectors and explanations; `core.displays` asks for it by name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor

from adascale.core.answers import Verdict
from adascale.core.errors import InputError, MissingExtraError
from adascale.core.extras import optional
from adascale.core.types import Outputs
from adascale.decision.explaining import Explanation
from adascale.extraction.given import images_of
from adascale.images.pixels import READ_ERRORS, opened
from adascale.report import html
from adascale.report.charts import plot
from adascale.report.document import Cell, Chart, Column, Line, Table
from adascale.showing.explain_charts import charts, score_chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adascale.decision.ood_detector import OODDetector

PICTURES, ROWS = 24, 200  # the most that a notebook shows
_DISTRIBUTION = {True: "out-of-distribution", False: "in-distribution"}


class Display:
    """Something that a notebook shows; elsewhere it is its text."""

    def __init__(self, page: str, text: str) -> None:
        self._page, self._text = page, text

    def _repr_html_(self) -> str:
        return self._page

    def __repr__(self) -> str:
        return self._text


def verdict_html(verdict: Verdict) -> str:
    """The pictures with their verdicts where the images are files that are still there; else a table."""
    found = [_file(name) for name in verdict.names[:PICTURES]]
    known = bool(found) and all(one is not None for one in found)
    return _gallery(verdict, [one for one in found if one is not None]) if known else _verdict_table(verdict)


def verdict_shown(verdict: Verdict, images: Any) -> Display:
    """The verdicts with these images: those that were judged, in any form that a detector takes."""
    found = images_of(images)
    if found is not None:
        count, pictures = len(found), [found.open(i) for i in range(min(PICTURES, len(found)))]
    else:
        inputs = _inputs(images)
        count, pictures = len(inputs), [_from_input(one) for one in inputs[:PICTURES]]
    if count != len(verdict):
        raise InputError(f"{count} images for {len(verdict)} verdicts; give the images that were judged.")
    return Display(_gallery(verdict, pictures), repr(verdict))


def _inputs(images: Any) -> list[Tensor]:
    """Tensors (C, H, W), from a tensor (N, C, H, W) or an iterable of tensors."""
    if not isinstance(images, Tensor):
        try:
            images = [torch.as_tensor(one) for one in images]
        except (TypeError, ValueError) as error:
            raise InputError(f"Images came as {type(images).__name__}; give the images that were judged.") from error
    flat = [one for part in images for one in (part if part.ndim == 4 else [part])]
    if any(one.ndim != 3 for one in flat):
        raise InputError("Images came as tensors of another form than (N, C, H, W) or (C, H, W).")
    return flat


def _from_input(image: Tensor) -> Image.Image:
    """A normalised input as a picture, from its darkest value to its brightest: nobody says how it was normalised."""
    values = image.detach().cpu().double().nan_to_num(0, 0, 0)[:3]
    low, high = values.min(), values.max()
    pixels = ((values - low) / (high - low).clamp_min(1e-12) * 255).round().byte()
    return Image.fromarray((pixels[0] if len(pixels) != 3 else pixels.permute(1, 2, 0)).numpy())


def _file(name: str) -> Image.Image | None:
    if not Path(name).is_file():
        return None
    try:
        with opened(Path(name), html.THUMBNAIL) as picture:
            return picture.copy()
    except READ_ERRORS:
        return None


def _gallery(verdict: Verdict, pictures: Sequence[Image.Image]) -> str:
    labels = verdict.label
    rows = [
        {
            "name": verdict.names[i] if verdict.names else f"image {i}", "is_ood": bool(verdict.is_ood[i]),
            "p_value": float(verdict.p_value[i]), "score": float(verdict.score[i]), "label": labels[i],
            "picture": picture,
        }
        for i, picture in enumerate(pictures)
    ]  # fmt: skip
    return html.fragment("verdict.html", verdict=verdict, rows=rows, table=None, more=len(verdict) - len(rows))


def _verdict_table(verdict: Verdict) -> str:
    columns = [
        Column("verdict", "Verdict"), Column("p_value", "P-value"), Column("score", "Score"), Column("label", "Class"),
        *(Column(name, f"adds: {name}") for name in verdict.evidence),
    ]  # fmt: skip
    lines = []
    for i, label in islice(enumerate(verdict.label), ROWS):
        p, score = float(verdict.p_value[i]), float(verdict.score[i])
        cells = {
            "verdict": Cell(text=_DISTRIBUTION[bool(verdict.is_ood[i])]), "label": Cell(text=label),
            "p_value": Cell(p, text=f"{p:.4g}"), "score": Cell(score, text=f"{score:.6g}"),
        }  # fmt: skip
        cells |= {
            name: Cell(float(found[i]), text=f"{float(found[i]):.3g}") for name, found in verdict.evidence.items()
        }
        lines.append(Line(verdict.names[i] if verdict.names else f"image {i}", cells))
    table = Table("Verdicts", columns, lines, head="image")
    return html.fragment("verdict.html", verdict=verdict, rows=[], table=table, more=len(verdict) - len(lines))


def outputs_html(outputs: Outputs) -> str:
    """Sizes of what passes between network and methods."""
    parts = {"logits": (outputs.logits, "z, one for each class"), "features": (outputs.features, "a, before the head")}
    parts |= {str(view): (found, "features of the perturbed images") for view, found in outputs.views.items()}
    if outputs.labels is not None:
        parts["labels"] = outputs.labels[:, None], "class indices"
    columns = [Column("what", "What"), *(Column(name, name) for name in ("shape", "least", "mean", "largest"))]
    lines = [Line(name, _described(found, what)) for name, (found, what) in parts.items()]
    return html.fragment("table.html", title=f"Outputs of {len(outputs)} images", notes=[],
                         table=Table("Outputs", columns, lines, head="part"), charts={})  # fmt: skip


def _described(values: Tensor, what: str) -> dict[str, Cell]:
    cells = {"what": Cell(text=what), "shape": Cell(text=" x ".join(map(str, values.shape)))}
    if values.numel():
        numbers = {"least": values.min(), "mean": values.double().mean(), "largest": values.max()}
        cells |= {name: Cell(float(one), text=f"{float(one):.4g}") for name, one in numbers.items()}
    return cells


def detector_html(detector: OODDetector) -> str:
    """What the detector is, where its parameters come from, what it promises, and its calibration scores."""
    network = type(detector.classifier.model).__name__
    if detector.calibration is None:
        return html.fragment("table.html", title=f"OODDetector: {detector.method.name}", table=None, charts={},
                             notes=[f"Network {network}; {detector.method}.", "Not fitted yet."])  # fmt: skip
    notes = [
        f"Network {network}; {detector.method}.", f"Parameters: {detector.setting}.", detector.guarantee,
        f"Threshold {detector.threshold:.6g}, set by {len(detector.calibration.scores)} calibration images.",
    ]  # fmt: skip
    shown = _drawable({"Scores of the calibration images, and the threshold": score_chart(detector.calibration)})
    title = f"OODDetector: {detector.method.name}"
    return html.fragment("table.html", title=title, table=None, notes=notes, charts=shown)


def detector_plot(detector: OODDetector, images: Any = None) -> Figure:
    """The calibration scores and the threshold; with images, their scores too."""
    assert detector.calibration is not None  # the caller has seen to it
    others = None if images is None else detector.score(images)
    return plot(score_chart(detector.calibration, others=others))


def explanation_html(found: Explanation) -> str:
    """The steps of the verdict, and the charts."""
    return html.fragment("steps.html", found=found, charts=_drawable(charts(found)))


def _drawable(found: dict[str, Chart]) -> dict[str, Chart]:
    """The charts, or none where matplotlib is not installed."""
    try:
        optional("matplotlib", "report")
    except MissingExtraError:
        return {}
    return found
