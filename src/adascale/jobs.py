"""The two long jobs of the command line, fit and score: streamed, resumable, no image lost in silence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from adascale.cache import ShardCache, cache_key
from adascale.data import ImageSet, Loaded, Preprocess, load_batches
from adascale.detector import OODDetector
from adascale.errors import AdascaleError, InputError
from adascale.extract import extract_batch
from adascale.model import Classifier
from adascale.progress import progress
from adascale.rows import Row
from adascale.types import Outputs, Verdict, View

VERDICT_COLUMNS = ("score", "p_value", "is_ood")
NOT_FINITE = "the network gave NaN or infinite activations; counted as out-of-distribution"


def extract_images(
    classifier: Classifier,
    images: ImageSet,
    preprocess: Preprocess,
    views: Sequence[View],
    folder: Path,
    *,
    title: str = "Reading images",
    batch_size: int = 32,
    workers: int | None = None,
) -> tuple[Outputs, dict[str, str]]:
    """Outputs of an image set, and what failed and why. Finished batches stay in ``folder`` until it is removed."""
    views = list(dict.fromkeys(views))
    network = (classifier.fingerprint(), classifier.head_name)
    key = cache_key(*network, images.fingerprint(), preprocess, *views, batch_size)
    cache = ShardCache(folder, key, views)
    shards = list(cache.read())
    start = min(len(shards) * batch_size, len(images))
    with progress(title, len(images), start) as advance:
        for batch in load_batches(images, preprocess, batch_size, start, workers):
            failed = {images.names[index]: reason for index, reason in batch.failures.items()}
            outputs = extract_batch(classifier, batch.images, views, batch.labels) if batch.indices else None
            cache.write(len(shards), outputs, failed)
            shards.append((outputs, failed))
            advance(len(batch.indices) + len(failed))
    usable = [outputs for outputs, _ in shards if outputs is not None]
    if not usable:
        raise InputError(f"None of the {len(images)} images can be read ({images.names[-1]}: see the reasons).")
    return Outputs.cat(usable), {name: reason for _, failed in shards for name, reason in failed.items()}


def fit_images(
    detectors: Sequence[OODDetector], images: ImageSet, train: ImageSet | None, folder: Path, **options: Any
) -> tuple[dict[str, str], dict[str, InputError]]:
    """Fit detectors of one network from one extraction. Returns the images that failed and why, and the methods that
    could not be fitted and why. What is finished stays in ``folder``.
    """
    classifier, preprocess = detectors[0].classifier, _preprocess(detectors)
    shape = look_at_first(classifier, images, preprocess)
    views = [view for detector in detectors for view in detector.method.views]
    title = "Reading in-distribution images"
    outputs, failures = extract_images(classifier, images, preprocess, views, folder / "id", title=title, **options)
    learned = None
    if train is not None and any(d.method.fits_on.startswith("train") for d in detectors):
        title = "Reading training images"
        learned, more = extract_images(classifier, train, preprocess, (), folder / "train", title=title, **options)
        failures |= more
    refused = {}
    for detector in detectors:
        detector.input_shape = shape
        try:
            detector.fit_outputs(outputs, learned)
        except InputError as error:
            refused[detector.method.name] = error
    return failures, refused


def look_at_first(classifier: Classifier, images: ImageSet, preprocess: Preprocess) -> tuple[int, ...]:
    """Find the head on the first readable image, before any long work; the shape of an input."""
    first: Loaded | None = None
    for first in load_batches(images, preprocess, batch_size=1, workers=1):
        if first.indices:
            shape = tuple(first.images.shape[1:])
            try:
                classifier.locate(first.images)
            except AdascaleError:
                raise
            except Exception as error:
                reason = " ".join(str(error).split())[:200]
                raise InputError(f"The network cannot take an input of shape {shape}: {reason}") from error
            return shape
    reason = next(iter(first.failures.values())) if first else "there is none"
    raise InputError(f"None of the {len(images)} images can be read ({images.names[-1]}: {reason}).")


def score_images(
    detectors: Mapping[str, OODDetector],
    images: ImageSet,
    start: int = 0,
    *,
    batch_size: int = 32,
    workers: int | None = None,
) -> Iterator[list[Row]]:
    """One row an image, in order, batch by batch, from index ``start`` on. Unreadable images have a reason instead.

    Several detectors of one network, each with the name of its columns, share every pass.
    """
    first, preprocess = next(iter(detectors.values())), _preprocess(list(detectors.values()))
    views = [view for detector in detectors.values() for view in detector.method.views]
    with progress("Scoring", len(images), start) as advance:
        for batch in load_batches(images, preprocess, batch_size, start, workers):
            rows = {index: _failed(detectors, images.names[index], why) for index, why in batch.failures.items()}
            if batch.indices:
                first.check_shape(batch.images)
                outputs = extract_batch(first.classifier, batch.images, views)
                verdicts = {_prefix(detectors, name): d.judge(outputs) for name, d in detectors.items()}
                rows |= {index: _row(images.names[index], verdicts, i) for i, index in enumerate(batch.indices)}
            yield [rows[index] for index in sorted(rows)]
            advance(len(rows))


def columns(detectors: Mapping[str, OODDetector]) -> list[str]:
    """``image, score, p_value, is_ood, prediction, error``; with several detectors ``NAME.score`` and so on."""
    verdicts = [_prefix(detectors, name) + column for name in detectors for column in VERDICT_COLUMNS]
    return ["image", *verdicts, "prediction", "error"]


def _preprocess(detectors: Sequence[OODDetector]) -> Preprocess:
    known = detectors[0].preprocess
    if known is None:
        raise InputError("The detector does not say how images become inputs; fit it with a preprocessing.")
    return known


def _prefix(detectors: Mapping[str, OODDetector], name: str) -> str:
    return "" if len(detectors) == 1 else f"{name}."


def _row(name: str, verdicts: dict[str, Verdict], i: int) -> Row:
    row: dict[str, Any] = {"image": name}
    error = None
    for prefix, verdict in verdicts.items():
        score = float(verdict.score[i])
        if not math.isfinite(score):
            error = NOT_FINITE
        row[prefix + "score"] = score if math.isfinite(score) else None
        row[prefix + "p_value"] = float(verdict.p_value[i])
        row[prefix + "is_ood"] = bool(verdict.is_ood[i])
        row["prediction"] = int(verdict.prediction[i])
    return {**row, "error": error}


def _failed(detectors: Mapping[str, OODDetector], name: str, reason: str) -> Row:
    return {**dict.fromkeys(columns(detectors)), "image": name, "error": reason}
