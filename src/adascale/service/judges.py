"""What a lane asks: a fitted detector, or an exported file, with a network of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from adascale.core.answers import Decision, Verdict
from adascale.core.errors import InputError
from adascale.core.types import View
from adascale.decision.folders import answered
from adascale.decision.ood_detector import OODDetector
from adascale.export.exported import Exported
from adascale.extraction.extract import extract_batch
from adascale.extraction.given import NEEDS_PREPROCESS
from adascale.images.preprocess import Preprocess
from adascale.network.classifier import Classifier
from adascale.service.explain import explained
from adascale.service.lane import Answered, Kind

COLUMNS = ("prediction", "class", "score", "p_value", "is_ood", "early", "error")
EXPLAINED = ("probability", "evidence", "explanation")
_BINS = 30


class Judge(Protocol):
    """A detector as the service uses it."""

    preprocess: Preprocess
    shape: tuple[int, ...] | None
    classes: int
    calibration: Tensor | None
    calibration_classes: Tensor | None

    def __call__(self, images: Tensor, kind: Kind) -> list[Answered]: ...

    def described(self) -> dict[str, Any]: ...


class Fitted:
    """An `OODDetector`. copy: it gets a private copy of the network, which nobody else changes or runs."""

    def __init__(self, detector: OODDetector, copy: bool = True) -> None:
        if detector.preprocess is None:
            raise InputError(NEEDS_PREPROCESS)
        self.detector = _private(detector) if copy else detector
        self.preprocess, self.shape = detector.preprocess, detector.input_shape
        self.classes = len(detector.classifier.head.weight)
        assert detector.guarantee  # an error if it is not fitted
        assert detector.calibration is not None
        self.calibration: Tensor | None = detector.calibration.scores
        self.calibration_classes = detector.calibration_classes

    def __call__(self, images: Tensor, kind: Kind) -> list[Answered]:
        detector = self.detector
        if kind == "decide":
            return rows(detector.decide(images))
        detector.check_shape(images)
        moved: dict[View, Tensor] = {}
        asked = moved if kind == "explain" else None
        outputs = extract_batch(detector.classifier, images, detector.method.wants, moved=asked)
        found = rows(detector.judge(outputs))
        if kind == "explain":
            for one, more in zip(found, explained(detector, images, outputs, moved), strict=True):
                one.row.update(more)
        return found

    def described(self) -> dict[str, Any]:
        detector = self.detector
        calibration = detector.calibration
        assert calibration is not None
        return {
            "method": detector.method.name,
            "setting": detector.setting,
            "guarantee": detector.guarantee,
            "alpha": detector.alpha,
            "level": calibration.level,
            "threshold": _finite(calibration.threshold),
            "classes": list(detector.class_names),
            "calibration": histogram(calibration.scores),
            "input": {"shape": self.shape, "preprocess": asdict(self.preprocess)},
        }


class FromFile:
    """An exported file, run by its engine. Its calibration scores are part of the graph and are not read, so it has no
    histogram and no monitor.
    """

    calibration: Tensor | None = None
    calibration_classes: Tensor | None = None

    def __init__(self, exported: Exported) -> None:
        if exported.takes_pixels or exported.preprocess is None or exported.record["export"]["early"] is not None:
            raise InputError(
                f"{exported.path.name} cannot be served: export it without --preprocess and --early, from a detector "
                "that knows how images become inputs."
            )
        self.exported, self.preprocess = exported, exported.preprocess
        self.shape: tuple[int, ...] | None = exported.input_shape
        self.classes = exported(torch.zeros(1, *exported.input_shape)).logits.shape[1]

    def __call__(self, images: Tensor, kind: Kind) -> list[Answered]:
        if kind == "explain":
            raise InputError("An exported file gives no explanations; serve the detector file for them.")
        return rows(self.exported.decide(images) if kind == "decide" else self.exported(images))

    def described(self) -> dict[str, Any]:
        record: Mapping[str, Any] = self.exported.record
        known = record["calibration"]
        return {
            "method": record["method"],
            "setting": record.get("setting", "as given"),
            "guarantee": known["guarantee"],
            "alpha": known["alpha"],
            "level": known.get("level"),
            "threshold": known.get("threshold"),
            "classes": list(self.exported.class_names),
            "calibration": {"n": 0, "edges": [], "counts": []},
            "input": {"shape": self.shape, "preprocess": asdict(self.preprocess)},
        }


def judge_of(given: OODDetector | str | Path | Exported, copy: bool = True) -> Judge:
    """The judge of a detector, or of an exported file."""
    if isinstance(given, OODDetector):
        return Fitted(given, copy)
    return FromFile(given if isinstance(given, Exported) else Exported(given))


def rows(answer: Verdict | Decision) -> list[Answered]:
    """The columns of an answer for each image, as ``adascale score`` has them; what it does not say is None."""
    found = []
    for i in range(len(answer)):
        known = answered({"": answer}, i)
        found.append(Answered({name: known.get(name) for name in COLUMNS}, answer.logits[i]))
    return found


def histogram(scores: Tensor) -> dict[str, Any]:
    """The calibration scores in bins of equal width."""
    finite = scores[scores.isfinite()].numpy()
    counts, edges = np.histogram(finite, bins=_BINS)
    return {"n": len(scores), "edges": edges.tolist(), "counts": counts.tolist()}


def _private(detector: OODDetector) -> OODDetector:
    """The same detector with a copy of the network."""
    own, known = copy.copy(detector), detector.classifier
    own.classifier = Classifier(
        known.model,
        known.head_name,
        precision=known.precision,
        compiled=known.compiled,
        channels_last=known.channels_last,
        engine=known.engine,
        class_names=known.class_names,
        copy=True,
    )
    own.classifier.adopt(known.head_name or "")
    return own


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
