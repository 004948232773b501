"""The long jobs of the command line, fit and score: streamed, resumable, and every unreadable image is reported."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from adascale.core.answers import Decision, Verdict
from adascale.core.errors import InputError
from adascale.core.progress import progress
from adascale.core.types import Outputs, View
from adascale.decision.detector_file import NetworkIdentity
from adascale.decision.ood_detector import OODDetector
from adascale.extraction.batches import Passes
from adascale.extraction.extract import extract_batch
from adascale.extraction.sets import Extractor
from adascale.images.loader import load_batches
from adascale.images.outliers import OUTLIERS
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.storage.rows import Row

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
    passes: Passes = Passes(),
) -> tuple[dict[str, str], dict[str, InputError]]:
    """Fit detectors of one network from one extraction, whose shards stay in ``folder``.

    Returns the images that could not be read and the methods that could not be fitted, each with the reason.
    """
    extractor = Extractor(detectors[0].classifier, _preprocess(detectors), folder, passes)
    plans = [detector.plan(tune) for detector in detectors]
    found = extractor.extract(images, [v for plan in plans for v in plan.views], "Reading in-distribution images")
    failures, learned = dict(found.failures), None
    usable = [i for i, name in enumerate(images.names) if name not in found.failures]
    if train is not None and any(detector.method.fits_on.startswith("train") for detector in detectors):
        training = extractor.extract(train, (), "Reading training images")
        learned, failures = training.load(), {**failures, **training.failures}
    tuned_views = [view for plan in plans if plan.chosen(len(found)) for view in plan.views]

    @lru_cache  # one extraction for all detectors
    def made(chosen: tuple[int, ...]) -> dict[str, Outputs]:
        ones, title = images.subset([usable[i] for i in chosen]), "Making outliers to tune on"
        return {
            name: extractor.extract(ones, tuned_views, f"{title} ({name})", make).load()
            for name, make in OUTLIERS.items()
        }

    def outliers(chosen: Sequence[int], _: Sequence[View]) -> dict[str, Outputs]:
        return made(tuple(chosen))

    refused, outputs = {}, found.load()
    network = NetworkIdentity(extractor.classifier, extractor.fingerprint)
    for detector in detectors:
        detector.input_shape = found.shape
        try:
            detector.fit_outputs(outputs, learned, outliers, tune=tune)
        except InputError as error:
            refused[detector.method.name] = error
        detector.network = network
    return failures, refused


def score_images(
    detectors: Mapping[str, OODDetector], images: ImageSet, start: int = 0, passes: Passes = Passes()
) -> Iterator[list[Row]]:
    """One row for each image, in order, batch by batch, from index ``start`` on; unreadable images have a reason.

    Several detectors of one network, each with the name of its columns, share every pass.
    """
    first, preprocess = next(iter(detectors.values())), _preprocess(list(detectors.values()))
    views = [view for detector in detectors.values() for view in detector.method.views]
    with progress("Scoring", len(images), start) as advance:
        for batch in load_batches(images, preprocess, passes.batch_size, start, passes.workers):
            rows = _failed(images, batch.failures, columns(detectors))
            if batch.indices:
                first.check_shape(batch.images)
                outputs = extract_batch(first.classifier, batch.images, views)
                verdicts = {_prefix(detectors, name): d.judge(outputs) for name, d in detectors.items()}
                rows |= {index: _scored(images.names[index], verdicts, i) for i, index in enumerate(batch.indices)}
            yield [rows[index] for index in sorted(rows)]
            advance(len(rows))


def decide_images(
    detector: OODDetector, images: ImageSet, start: int = 0, passes: Passes = Passes()
) -> Iterator[list[Row]]:
    """The same rows with ``early`` in place of score and p-value: see `OODDetector.decide`."""
    waiting = deque[tuple[list[int], dict[int, str]]]()
    loaded = load_batches(images, _preprocess([detector]), passes.batch_size, start, passes.workers)

    def inputs() -> Iterator[Tensor]:
        for batch in loaded:
            waiting.append((batch.indices, batch.failures))
            if batch.indices:
                yield batch.images

    with progress("Deciding", len(images), start) as advance:
        # Decisions come later than their batches, and batches without a readable image have none.
        for decision in chain(detector.decisions(inputs(), passes.batch_size), [None]):
            while waiting and (decision is not None or not waiting[0][0]):
                indices, failures = waiting.popleft()
                rows = _failed(images, failures, DECISION_COLUMNS)
                if decision is not None:
                    rows |= {index: _decided(images.names[index], decision, i) for i, index in enumerate(indices)}
                yield [rows[index] for index in sorted(rows)]
                advance(len(rows))
                if indices:
                    break


def columns(detectors: Mapping[str, OODDetector]) -> list[str]:
    """``image, score, p_value, is_ood, prediction, error``; with several detectors ``NAME.score`` and so on."""
    verdicts = [_prefix(detectors, name) + column for name in detectors for column in VERDICT_COLUMNS]
    return ["image", *verdicts, "prediction", "error"]


def _preprocess(detectors: Sequence[OODDetector]) -> Preprocess:
    known = detectors[0].preprocess
    if known is None:
        raise InputError("The detector does not say how images become inputs; make it with preprocess=Preprocess(...).")
    return known


def _prefix(detectors: Mapping[str, OODDetector], name: str) -> str:
    return "" if len(detectors) == 1 else f"{name}."


def _failed(images: ImageSet, failures: Mapping[int, str], names: Sequence[str]) -> dict[int, Row]:
    return {i: {**dict.fromkeys(names), "image": images.names[i], "error": why} for i, why in failures.items()}


def _scored(name: str, verdicts: Mapping[str, Verdict], i: int) -> Row:
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


def _decided(name: str, decision: Decision, i: int) -> Row:
    answer = {"is_ood": bool(decision.is_ood[i]), "early": bool(decision.early[i])}
    error = None if bool(decision.logits[i].isfinite().all()) else NOT_FINITE
    return {"image": name, **answer, "prediction": int(decision.prediction[i]), "error": error}
