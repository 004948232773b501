"""The long jobs of the command line, fit and score: streamed, resumable, and every unreadable image is reported."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from adascale.core.answers import Decision, Verdict, label_of
from adascale.core.errors import InputError
from adascale.core.progress import progress
from adascale.core.shards import Shards
from adascale.core.types import Need, Outputs
from adascale.decision.detector_file import NetworkIdentity
from adascale.decision.ood_detector import OODDetector
from adascale.extraction.batches import Passes
from adascale.extraction.cache import Extractor, Spread
from adascale.extraction.extract import extract_batch
from adascale.extraction.given import NEEDS_PREPROCESS
from adascale.images.loader import Loaded, load_batches
from adascale.images.outliers import OUTLIERS
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.storage.remote import Place
from adascale.storage.rows import Row

VERDICT_COLUMNS = ("score", "p_value", "is_ood")
DECISION_COLUMNS = ("is_ood", "early")
NOT_FINITE = "the network gave NaN or infinite activations; counted as out-of-distribution"


def fit_images(
    detectors: Sequence[OODDetector],
    images: ImageSet,
    train: ImageSet | None,
    folder: Place,
    *,
    tune: bool | None = None,
    passes: Passes = Passes(),
    source: str = "images",
    spread: Spread | None = None,
) -> tuple[dict[str, str], dict[str, InputError]]:
    """Fit detectors of one network from one extraction, whose shards stay in ``folder``.

    source: what the record says about where the images come from. spread: others that make the passes.

    Returns the images that could not be read and the methods that could not be fitted, each with the reason.
    """
    extractor = Extractor(detectors[0].classifier, _preprocess(detectors[0]), folder, passes, spread)
    detectors, refused = _possible(detectors, extractor, images)
    plans = [detector.plan(tune) for detector in detectors]
    needs = [need for plan in plans for need in plan.needs]
    found = extractor.extract(images, needs, "Reading in-distribution images")
    learned: Outputs | Shards | None = None
    failures = dict(found.failures)
    if train is not None and any(plan.takes_train for plan in plans):
        taps = [tap for plan in plans if plan.takes_train for tap in plan.taps]
        training = extractor.extract(train, taps, "Reading training images")
        learned, failures = training.learnable(), {**failures, **training.failures}
    tuned = [need for plan in plans if plan.chosen(len(found)) for need in plan.needs]

    @lru_cache  # one extraction for all detectors
    def made(chosen: tuple[int, ...]) -> dict[str, Outputs]:
        ones, title = images.subset([found.usable[i] for i in chosen]), "Making outliers to tune on"
        kinds = OUTLIERS.items()
        return {kind: extractor.extract(ones, tuned, f"{title} ({kind})", make).load() for kind, make in kinds}

    def outliers(chosen: Sequence[int], _: Sequence[Need]) -> dict[str, Outputs]:
        return made(tuple(chosen))

    def late(rows: Sequence[int], needs: Sequence[Need]) -> Outputs:
        again = extractor.extract(images, needs, "Perturbing in-distribution images")  # all: a shard is whole
        return again.load()[torch.tensor(rows)]

    outputs, names = found.load(), [images.names[i] for i in found.usable]
    network = NetworkIdentity(extractor.classifier, extractor.fingerprint)
    for detector in detectors:
        detector.input_shape = found.shape
        try:
            detector.fit_outputs(outputs, learned, outliers, tune=tune, source=source, names=names, late=late)
        except InputError as error:
            refused[detector.method.name] = error
        detector.network = network
    return failures, refused


def _possible(
    detectors: Sequence[OODDetector], extractor: Extractor, images: ImageSet
) -> tuple[list[OODDetector], dict[str, InputError]]:
    """The detectors whose network can give what they need, and the others, with the reason."""
    lacking = extractor.cannot(images, [need for detector in detectors for need in detector.method.wants])
    reasons = {d.method.name: next((lacking[n] for n in d.method.wants if n in lacking), "") for d in detectors}
    refused = {name: InputError(reason) for name, reason in reasons.items() if reason}
    if len(refused) == len(detectors):
        raise next(iter(refused.values()))
    return [detector for detector in detectors if detector.method.name not in refused], refused


def score_images(
    detectors: Mapping[str, OODDetector],
    images: ImageSet,
    start: int = 0,
    passes: Passes = Passes(),
    evidence: bool = False,
    quiet: bool = False,
) -> Iterator[list[Row]]:
    """One row for each image, in order, batch by batch, from index ``start`` on; unreadable images have a reason.

    Several detectors of one network, each with the name of its columns, share every pass. evidence: also what each
    member of a combined method adds to the score. quiet: without a display of the progress.
    """
    first, names = next(iter(detectors.values())), columns(detectors, evidence=evidence)
    needs = [need for detector in detectors.values() for need in detector.method.wants]
    with progress("Scoring", len(images), start, quiet) as advance:
        for batch in load_batches(images, _preprocess(first), passes.batch_size, start, passes.workers):
            verdicts: dict[str, Verdict] = {}
            if batch.indices:
                first.check_shape(batch.images)
                outputs = extract_batch(first.classifier, batch.images, needs)
                verdicts = {_prefix(detectors, name): d.judge(outputs) for name, d in detectors.items()}
            yield _rows(images, batch, verdicts, names)
            advance(len(batch.indices) + len(batch.failures))


def decide_images(
    detector: OODDetector, images: ImageSet, start: int = 0, passes: Passes = Passes(), quiet: bool = False
) -> Iterator[list[Row]]:
    """The same rows with ``early`` in place of score and p-value: see `OODDetector.decide`."""
    waiting, names = deque[Loaded](), columns({"": detector}, decide=True)
    loaded = load_batches(images, _preprocess(detector), passes.batch_size, start, passes.workers)

    def inputs() -> Iterator[Tensor]:
        for batch in loaded:
            waiting.append(replace(batch, images=torch.empty(0)))  # only the rest is needed
            if batch.indices:
                yield batch.images

    with progress("Deciding", len(images), start, quiet) as advance:
        # Decisions come later than their batches, and batches without a readable image have none.
        for decision in chain(detector.decisions(inputs(), passes.batch_size), [None]):
            while waiting and (decision is not None or not waiting[0].indices):
                batch = waiting.popleft()
                yield _rows(images, batch, {} if decision is None else {"": decision}, names)
                advance(len(batch.indices) + len(batch.failures))
                if batch.indices:
                    break


class Tally:
    """What rows add up to: how many there are, how many images could not be read, how many each detector flags."""

    def __init__(self, columns: Iterable[str]) -> None:
        self.rows = self.failed = 0
        self.ood = {column: 0 for column in columns if column.endswith("is_ood")}

    def counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows, counted on their way."""
        for row in rows:
            self.rows += 1
            self.failed += row["prediction"] is None
            for column in self.ood:
                self.ood[column] += bool(row[column])
            yield row

    def add(self, rows: Iterable[Row]) -> None:
        deque(self.counted(rows), maxlen=0)


def columns(detectors: Mapping[str, OODDetector], decide: bool = False, evidence: bool = False) -> list[str]:
    """``image, score, p_value, is_ood, prediction, error``; with several detectors ``NAME.score`` and so on.

    Where the classes have names, ``class`` follows ``prediction``. decide: for decisions, ``image, is_ood, early``.
    evidence: also ``evidence.MEMBER`` for each member of a combined method.
    """
    own, answers = DECISION_COLUMNS if decide else VERDICT_COLUMNS, list[str]()
    for name, detector in detectors.items():
        members = detector.method.speakers if evidence else ()
        answers += [_prefix(detectors, name) + column for column in (*own, *map(_evidence, members))]
    named = ["class"] if any(detector.class_names for detector in detectors.values()) else []
    return ["image", *answers, "prediction", *named, "error"]


def _evidence(member: str) -> str:
    """The column of what a member adds to the score."""
    return f"evidence.{member}"


def _preprocess(detector: OODDetector) -> Preprocess:
    if detector.preprocess is None:
        raise InputError(NEEDS_PREPROCESS)
    return detector.preprocess


def _prefix(detectors: Mapping[str, OODDetector], name: str) -> str:
    return "" if len(detectors) == 1 else f"{name}."


def _rows(
    images: ImageSet, batch: Loaded, answers: Mapping[str, Verdict | Decision], names: Sequence[str]
) -> list[Row]:
    """A row for each image of the batch, in order. answers: by the prefix of their columns."""
    rows: dict[int, dict[str, Any]] = {index: {"error": reason} for index, reason in batch.failures.items()}
    rows |= {index: answered(answers, i) for i, index in enumerate(batch.indices)}
    for index, row in rows.items():
        row["image"] = images.names[index]
    return [{name: rows[index].get(name) for name in names} for index in sorted(rows)]


def answered(answers: Mapping[str, Verdict | Decision], i: int) -> dict[str, Any]:
    """What the answers say about image i, by column. answers: by the prefix of their columns."""
    row: dict[str, Any] = {"error": None}
    for prefix, answer in answers.items():
        row |= {prefix + "is_ood": bool(answer.is_ood[i]), "prediction": int(answer.prediction[i])}
        if answer.class_names:
            row["class"] = label_of(row["prediction"], answer.class_names)
        if isinstance(answer, Verdict):
            score = float(answer.score[i])
            finite = math.isfinite(score)
            row |= {prefix + "score": score if finite else None, prefix + "p_value": float(answer.p_value[i])}
            row |= {prefix + _evidence(name): float(v[i]) if finite else None for name, v in answer.evidence.items()}
        else:
            finite = bool(answer.logits[i].isfinite().all())
            row["early"] = bool(answer.early[i])
        row["error"] = row["error"] if finite else NOT_FINITE
    return row
