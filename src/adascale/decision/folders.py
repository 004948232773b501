"""The two long jobs of the command line, fit and score: streamed, resumable, no image lost in silence."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from adascale.core.answers import Decision, Verdict
from adascale.core.errors import InputError
from adascale.core.progress import progress
from adascale.core.types import Outputs, View
from adascale.decision.ood_detector import OODDetector
from adascale.extraction.cache import Extracted
from adascale.extraction.extract import extract_batch
from adascale.extraction.sets import extract_images
from adascale.images.loader import load_batches
from adascale.images.outliers import OUTLIERS, Tamper
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.storage.journal import Row

VERDICT_COLUMNS = ("score", "p_value", "is_ood")
DECISION_COLUMNS = ("image", "is_ood", "early", "prediction", "error")
NOT_FINITE = "the network gave NaN or infinite activations; counted as out-of-distribution"


def fit_images(
    detectors: Sequence[OODDetector],
    images: ImageSet,
    train: ImageSet | None,
    folder: Path,
    *,
    tune: bool | None = None,
    **options: Any,
) -> tuple[dict[str, str], dict[str, InputError]]:
    """Fit detectors of one network from one extraction. Returns the images that failed and why, and the methods that
    could not be fitted and why. What is finished stays in ``folder``.
    """
    classifier, preprocess = detectors[0].classifier, _preprocess(detectors)

    def extracted(source: ImageSet, views: Sequence[View], title: str, tamper: Tamper | None = None) -> Extracted:
        return extract_images(classifier, source, preprocess, views, folder, tamper=tamper, title=title, **options)

    views = [view for detector in detectors for view in detector.plan(tune).views]
    found = extracted(images, views, "Reading in-distribution images")
    failures, n = dict(found.failures), len(found)
    usable = [i for i, name in enumerate(images.names) if name not in failures]
    learned = None
    if train is not None and any(d.method.fits_on.startswith("train") for d in detectors):
        training = extracted(train, (), "Reading training images")
        learned, failures = training.load(), {**failures, **training.failures}
    outliers: dict[str, Outputs] = {}
    if tuned := [detector for detector in detectors if detector.plan(tune).chosen(n)]:
        chosen = images.subset([usable[i] for i in tuned[0].plan(tune).chosen(n)])
        views = [view for detector in tuned for view in detector.plan(tune).views]
        for name, outlier in OUTLIERS.items():
            outliers[name] = extracted(chosen, views, f"Making outliers to tune on ({name})", outlier).load()
    refused, outputs = {}, found.load()
    for detector in detectors:
        detector.input_shape = found.shape
        try:
            detector.fit_outputs(outputs, learned, outliers if detector in tuned else None, tune=tune)
        except InputError as error:
            refused[detector.method.name] = error
    return failures, refused


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


def decide_images(
    detector: OODDetector,
    images: ImageSet,
    start: int = 0,
    *,
    batch_size: int = 32,
    workers: int | None = None,
) -> Iterator[list[Row]]:
    """The same rows with ``early`` in the place of score and p-value: see `OODDetector.decide`."""
    preprocess, waiting = _preprocess([detector]), deque[tuple[list[int], dict[int, str]]]()

    def inputs() -> Iterator[Tensor]:
        for batch in load_batches(images, preprocess, batch_size, start, workers):
            waiting.append((batch.indices, batch.failures))
            if batch.indices:
                yield batch.images

    def rows(indices: Sequence[int], failures: Mapping[int, str], decision: Decision | None) -> list[Row]:
        empty = dict.fromkeys(DECISION_COLUMNS)
        made: dict[int, Row] = {i: {**empty, "image": images.names[i], "error": why} for i, why in failures.items()}
        for place, i in enumerate(indices if decision else ()):
            assert decision is not None
            answer = {"is_ood": bool(decision.is_ood[place]), "early": bool(decision.early[place])}
            prediction = int(decision.prediction[place])
            error = None if bool(decision.logits[place].isfinite().all()) else NOT_FINITE
            made[i] = {"image": images.names[i], **answer, "prediction": prediction, "error": error}
        return [made[i] for i in sorted(made)]

    with progress("Deciding", len(images), start) as advance:
        for decision in chain(detector.decisions(inputs(), batch_size), [None]):
            while waiting:
                indices, failures = waiting[0]
                if indices and decision is None:
                    break
                waiting.popleft()
                yield rows(indices, failures, decision)
                advance(len(indices) + len(failures))
                if indices:
                    break


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
