"""The two long jobs of the command line, fit and score: streamed, resumable, no image lost in silence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from adascale.cache import ShardCache, cache_key
from adascale.data import ImageSet, Loaded, Preprocess, load_batches
from adascale.detector import OODDetector
from adascale.errors import InputError
from adascale.extract import extract_batch
from adascale.progress import progress
from adascale.rows import Row
from adascale.types import Outputs, Verdict

COLUMNS = ("image", "score", "p_value", "is_ood", "prediction", "error")
NOT_FINITE = "the network gave NaN or infinite activations; counted as out-of-distribution"


def fit_images(detector: OODDetector, images: ImageSet, folder: Path, workers: int | None = None) -> dict[str, str]:
    """Fit on an image set; finished batches are kept in ``folder`` until all is done. Returns what failed and why."""
    preprocess, views, size = _preprocess(detector), detector.method.views, detector.batch_size
    _look_at_first(detector, images, preprocess)
    key = cache_key(detector.classifier.fingerprint(), images.fingerprint(), preprocess, *views, size)
    cache = ShardCache(folder, key, views)
    shards = list(cache.read())
    start = min(len(shards) * size, len(images))
    with progress("Reading in-distribution images", len(images), start) as advance:
        for batch in load_batches(images, preprocess, size, start, workers):
            failed = {images.names[index]: reason for index, reason in batch.failures.items()}
            outputs = extract_batch(detector.classifier, batch.images, views) if batch.indices else None
            cache.write(len(shards), outputs, failed)
            shards.append((outputs, failed))
            advance(len(batch.indices) + len(failed))
    detector.fit_outputs(Outputs.cat([outputs for outputs, _ in shards if outputs is not None]))
    cache.remove()
    return {name: reason for _, failed in shards for name, reason in failed.items()}


def score_images(
    detector: OODDetector, images: ImageSet, start: int = 0, workers: int | None = None
) -> Iterator[list[Row]]:
    """One row an image, in order, batch by batch, from index ``start`` on. Unreadable images have a reason instead."""
    preprocess = _preprocess(detector)
    with progress("Scoring", len(images), start) as advance:
        for batch in load_batches(images, preprocess, detector.batch_size, start, workers):
            rows = {index: _failed(images.names[index], reason) for index, reason in batch.failures.items()}
            if batch.indices:
                verdict = detector(batch.images)
                rows |= {index: _row(images.names[index], verdict, i) for i, index in enumerate(batch.indices)}
            yield [rows[index] for index in sorted(rows)]
            advance(len(rows))


def _preprocess(detector: OODDetector) -> Preprocess:
    if detector.preprocess is None:
        raise InputError(
            "How images become this network's input is not known; pass --size, --crop, --mean and --std "
            "(ImageNet networks mostly: --size 256 --crop 224 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225)."
        )
    return detector.preprocess


def _look_at_first(detector: OODDetector, images: ImageSet, preprocess: Preprocess) -> None:
    """Find the head on the first readable image, before any long work."""
    first: Loaded | None = None
    for first in load_batches(images, preprocess, batch_size=1, workers=1):
        if first.indices:
            detector.classifier.locate(first.images)
            detector.input_shape = tuple(first.images.shape[1:])
            return
    reason = next(iter(first.failures.values())) if first else "there is none"
    raise InputError(f"None of the {len(images)} images can be read ({images.names[-1]}: {reason}).")


def _row(name: str, verdict: Verdict, i: int) -> Row:
    score = float(verdict.score[i])
    return {
        "image": name,
        "score": score if math.isfinite(score) else None,
        "p_value": float(verdict.p_value[i]),
        "is_ood": bool(verdict.is_ood[i]),
        "prediction": int(verdict.prediction[i]),
        "error": None if math.isfinite(score) else NOT_FINITE,
    }


def _failed(name: str, reason: str) -> Row:
    return {**dict.fromkeys(COLUMNS), "image": name, "error": reason}
