"""The two long jobs of the command line, fit and score: streamed, resumable, no image lost in silence."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from adascale.cache import Extracted, Shard, ShardCache, cache_key
from adascale.data import ImageSet, Preprocess, load_batches, load_ranges
from adascale.detector import OODDetector
from adascale.errors import AdascaleError, InputError
from adascale.extract import extract_batch, extract_views
from adascale.model import Classifier
from adascale.outliers import OUTLIERS, Tamper
from adascale.progress import progress
from adascale.rows import Row
from adascale.types import Decision, Outputs, Verdict, View

VERDICT_COLUMNS = ("score", "p_value", "is_ood")
DECISION_COLUMNS = ("image", "is_ood", "early", "prediction", "error")
NOT_FINITE = "the network gave NaN or infinite activations; counted as out-of-distribution"


def extract_images(
    classifier: Classifier,
    images: ImageSet,
    preprocess: Preprocess,
    views: Sequence[View],
    folder: Path,
    *,
    tamper: Tamper | None = None,
    title: str = "Reading images",
    batch_size: int = 32,
    workers: int | None = None,
) -> Extracted:
    """The outputs of an image set, in shards under ``folder``. Only what is not there yet costs a network pass."""
    views = list(dict.fromkeys(views))
    cache = cache_of(classifier, images, preprocess, folder, tamper, batch_size)
    ranges = [range(i, min(i + batch_size, len(images))) for i in range(0, len(images), batch_size)]
    shards, missing = _known(cache, len(ranges), views)
    left = sum(len(ranges[index]) for index in missing)
    with progress(title, len(images), len(images) - left) as advance:
        batches = load_ranges(images, preprocess, (ranges[index] for index in missing), workers)
        for (index, lacking), batch in zip(missing.items(), batches, strict=True):
            if batch.indices:
                _locate(classifier, batch.images)
                inputs = batch.images if tamper is None else tamper(batch.images)
            if shards[index] is None:
                failed = {images.names[i]: reason for i, reason in batch.failures.items()}
                shard = Shard(None, failed)
                if batch.indices:
                    outputs = extract_batch(classifier, inputs, lacking, batch.labels)
                    shard = Shard(outputs, failed, classifier.head_name, tuple(inputs.shape[1:]))
                cache.write(index, shard)
                shards[index] = _only_numbers(shard)
            else:
                for view, perturbed in extract_views(classifier, inputs, lacking).items():
                    cache.write_view(index, view, perturbed)
            advance(len(ranges[index]))
    return _extracted(classifier, images, cache, views, [shard for shard in shards if shard is not None])


def cache_of(
    classifier: Classifier,
    images: ImageSet,
    preprocess: Preprocess,
    folder: Path,
    tamper: Tamper | None = None,
    batch_size: int = 32,
) -> ShardCache:
    """Where the outputs of these images are kept: one place for each network, data, preprocessing and batch size."""
    network = (classifier.fingerprint(), classifier.code(), classifier.asked_for)
    return ShardCache(folder, cache_key(*network, images.fingerprint(), preprocess, tamper, batch_size))


def _known(cache: ShardCache, count: int, views: Sequence[View]) -> tuple[list[_Summary | None], dict[int, list[View]]]:
    """What is there of each shard, and which views each incomplete one lacks; one shard in memory at a time."""
    shards, missing = list[_Summary | None](), dict[int, list[View]]()
    for index in range(count):
        shard, lacking = cache.read(index, views)
        shards.append(_only_numbers(shard))
        if shard is None or lacking:
            missing[index] = lacking
    return shards, missing


def _only_numbers(shard: Shard | None) -> _Summary | None:
    if shard is None:
        return None
    return _Summary(len(shard.outputs) if shard.outputs else 0, shard.failures, shard.head, shard.shape)


class _Summary(NamedTuple):
    rows: int
    failures: Mapping[str, str]
    head: str | None
    shape: tuple[int, ...]


def _extracted(
    classifier: Classifier, images: ImageSet, cache: ShardCache, views: Sequence[View], shards: Sequence[_Summary]
) -> Extracted:
    failures = {name: reason for shard in shards for name, reason in shard.failures.items()}
    used = next((shard for shard in shards if shard.rows), None)
    if used is None or used.head is None:
        name, reason = next(iter(failures.items()))
        raise InputError(f"None of the {len(images)} images can be read ({name}: {reason}).")
    if classifier.head_name is None:
        classifier.adopt(used.head)
    return Extracted(cache, views, [shard.rows for shard in shards], failures, used.shape)


def _locate(classifier: Classifier, images: Tensor) -> None:
    """Find the head on the first batch, before any long work."""
    if classifier.located:
        return
    try:
        classifier.locate(images)
    except AdascaleError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        shape = tuple(images.shape[1:])
        raise InputError(f"The network cannot take an input of shape {shape}: {reason}") from error


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
