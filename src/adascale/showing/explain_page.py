"""The page of ``adascale explain``: the verdict on an image, each number of it traced back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from adascale.decision.explaining import Explanation
from adascale.decision.ood_detector import OODDetector
from adascale.images.seen import input_picture, marked_picture
from adascale.report import html
from adascale.showing.explain_charts import charts
from adascale.storage.atomic import write_text


def write_page(found: Sequence[Explanation], detector: OODDetector, path: Path | str) -> None:
    """Write the page: whole or not at all. The same explanations give the same bytes."""
    write_text(Path(path), explain_page(found, detector))


def explain_page(found: Sequence[Explanation], detector: OODDetector) -> str:
    """The page as text. It needs ``adascale[report]``."""
    shorter = _short([one.name for one in found])
    shown = [_shown(one, detector) | {"short": name} for one, name in zip(found, shorter, strict=True)]
    return html.page(
        "explain.html", found=shown, name=detector.method.name,
        method=str(detector.method),
        setting=detector.setting, guarantee=detector.guarantee, compared=_compared(found),
        toc=[(f"image-{i}", name) for i, name in enumerate(shorter, start=1)],
    )  # fmt: skip


def _short(names: Sequence[str]) -> list[str]:
    """Names of files without their folders, unless that makes two of them alike."""
    found = [
        name.rpartition("/")[2] or (f"image {i}" if len(names) > 1 else "the image") for i, name in enumerate(names, 1)
    ]
    return found if len(set(found)) == len(found) else list(names)


def _shown(found: Explanation, detector: OODDetector) -> dict[str, Any]:
    picture = input_picture(found.image, detector.preprocess)
    moved = None if picture is None or found.trace is None or found.trace.mask is None else found.trace.mask
    pictures: dict[str, Image.Image] = {} if picture is None else {"The picture as the network gets it": picture}
    if picture is not None and moved is not None and found.trace is not None:
        trace = found.trace
        count = f"{trace.values:,} of {trace.of:,} channel values are moved by {trace.view.step:g}"
        words = f"{count}; the pixels they belong to are marked"
        pictures[words] = marked_picture(picture, moved)
    return {
        "one": found,
        "name": found.name or "the image",
        "pictures": pictures,
        "charts": list(charts(found).items()),
    }


def _compared(found: Sequence[Explanation]) -> list[tuple[str, str, list[str]]]:
    """The same numbers of several images side by side: symbol, meaning, values. Empty for a single image."""
    steps = [{step.symbol: step for step in one.steps} for one in found]
    if len(found) < 2:
        return []
    rows = []
    for symbol, step in steps[0].items():
        values = [own[symbol] for own in steps if symbol in own]
        if symbol == "verdict":
            rows.append((symbol, "", [one.meaning for one in values]))
        elif symbol.startswith("r("):
            continue  # r, their mean, is enough here
        elif len(values) == len(steps) and all(one.value is not None for one in values):
            rows.append((symbol, step.meaning if symbol == "τ" else "", [f"{one.value:.6g}" for one in values]))
    return rows
