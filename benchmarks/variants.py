"""(i) what the options of a pass do: time, and what becomes of scores and decisions."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adascale import Classifier, OODDetector, Preprocess
from adascale.core.precisions import RUNS, answer
from adascale.core.timing import interleaved
from adascale.images.loader import load_batches
from adascale.images.sources import find_images
from benchmarks.measured import Ratio, ratio
from benchmarks.subjects import Subject

VARIANTS: dict[str, dict[str, Any]] = {
    "channels_last=False": {"channels_last": False},
    "precision='bf16'": {"precision": "bf16"},
    "precision='fp16'": {"precision": "fp16"},
}
COMPILED: dict[str, dict[str, Any]] = {"compiled=True": {"compiled": True}}


def options(subject: Subject, repeats: int, variants: dict[str, dict[str, Any]] = VARIANTS) -> Iterator[Ratio]:
    """The full score with trivial pixels, each option against none; fitted with the option, as a user would.

    A precision that does not run on this processor is left out, with a line on stderr.
    """
    images = torch.cat([subject.known[:64], subject.unknown[:64]])
    batch = images[: subject.batch]
    usual = _fitted(subject, {})
    known = usual(images)
    for name, option in variants.items():
        if "precision" in option and (reason := answer(option["precision"])) != RUNS:
            print(f"{name} is left out: {reason}", file=sys.stderr)
            continue
        detector = _fitted(subject, option)
        found = detector(images)
        flips = int((found.is_ood != known.is_ood).sum())
        note = f"rank correlation of scores {rank_correlation(found.score, known.score):.5f}, "
        note += f"{flips} of {len(images)} decisions flip"
        calls: dict[str, Callable[[], object]] = {
            "usual": partial(usual.score, batch),
            "option": partial(detector.score, batch),
        }
        times = interleaved(calls, repeats)
        yield ratio(
            "i", f"full score with {name} / without", subject.name, times["option"].over(times["usual"]), None, note
        )


def _fitted(subject: Subject, option: dict[str, Any]) -> OODDetector:
    detector = OODDetector(Classifier(subject.model, **option), "adascale_a", p_min=80, p_max=85)
    detector.batch_size = subject.batch
    return detector.fit(subject.val, tune=False)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's."""
    ranks = torch.stack([values.argsort().argsort().double() for values in (a, b)])
    return float(torch.corrcoef(ranks)[0, 1])


def drafts(repeats: int) -> Iterator[Ratio]:
    """Decoding a camera's JPEG (4001 x 2999, smooth with fine noise) to 224 pixels."""
    generator = np.random.default_rng(0)
    coarse = Image.fromarray(generator.integers(0, 256, (30, 40, 3), dtype=np.uint8)).resize(
        (4001, 2999), Image.Resampling.BICUBIC
    )
    noisy = np.asarray(coarse).astype(np.int16) + generator.integers(-12, 13, (2999, 4001, 3))
    preprocess = Preprocess(256, 224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with tempfile.TemporaryDirectory() as folder:
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(Path(folder) / "photograph.jpg", quality=92)
        images = find_images(folder)

        def decoded(draft: bool) -> Tensor:
            return next(iter(load_batches(images, replace(preprocess, draft=draft), workers=1))).images

        difference = (decoded(True) - decoded(False)).abs() * torch.tensor(preprocess.std).view(3, 1, 1) * 255
        times = interleaved({"full": partial(decoded, False), "draft": partial(decoded, True)}, repeats)
    note = f"pixels differ by {float(difference.mean()):.2f} of 255 on average, {float(difference.max()):.0f} at most"
    what, case = "decoding with draft=True / without", "JPEG, 4001 x 2999"
    yield ratio("i", what, case, times["draft"].over(times["full"]), note=note)
