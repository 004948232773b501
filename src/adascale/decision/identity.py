"""Is this the network, the method, the data that a detector belongs to?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adascale import detectors
from adascale.core.errors import DetectorFileError, HeadNotFoundError, InputError
from adascale.core.types import Head, Outputs
from adascale.detectors import Detector
from adascale.maths.rounding import alike
from adascale.network.classifier import Classifier


def adopt_head(
    classifier: Classifier, record: Mapping[str, Any], tensors: Mapping[str, Tensor], path: str | Path
) -> Head:
    """The network's head, after proving that it is the network of the file: layer, weights, behaviour."""
    saved, given = record["head"], type(classifier.model).__name__
    fitted = f"{path} was fitted on a {record['network']['class']} with the head {saved['name']!r}"
    advice = "Load it beside the network it was fitted on, or fit again."
    if classifier.head_name not in (None, saved["name"]):
        raise DetectorFileError(f"{fitted}; this one is used with the head {classifier.head_name!r}. {advice}")
    if saved["name"] not in dict(classifier.model.named_modules()):
        raise DetectorFileError(f"{fitted}; this {given} has no such layer. {advice}")
    if classifier.fingerprint() != record["network"]["fingerprint"]:
        raise DetectorFileError(f"{fitted}; this {given} has other layers, weights or precision. {advice}")
    precision = record["network"].get("precision")
    if classifier.precision != precision and (classifier.precision is not None or classifier.head_name is not None):
        ran, runs = (name or "full precision" for name in (precision, classifier.precision))
        raise DetectorFileError(f"{fitted} in {ran}; this one runs in {runs}. {advice}")
    before = classifier.precision
    classifier.precision = precision
    try:
        classifier.adopt(saved["name"])
        if "probe.images" in tensors:
            try:
                features, _ = classifier.locate(tensors["probe.images"]).forward(tensors["probe.images"])
            except HeadNotFoundError as error:
                raise DetectorFileError(f"{fitted}; in this {given} it is no head. {advice}") from error
            if not alike(features, tensors["probe.features"], 0.02):  # other machines and versions round differently
                raise DetectorFileError(f"{fitted}; this {given} has its weights, but computes otherwise. {advice}")
        if classifier.head.fingerprint() != saved["fingerprint"]:
            raise DetectorFileError(f"{fitted}; this {given}'s has other weights. {advice}")
    except DetectorFileError:
        classifier.precision = before
        raise
    return classifier.head


def saved_method(record: Mapping[str, Any], method: type[Detector] | None, path: str | Path) -> Detector:
    try:
        return (method or detectors.get(record["method"]))(**record["parameters"])
    except (InputError, TypeError) as error:
        raise DetectorFileError(
            f"{path} holds the method {record['method']} with the parameters {record['parameters']}, which this "
            f"version does not know ({error}). Pass load(..., method=) for a class of your own, or fit again."
        ) from error


def shared_rows(outputs: Outputs, train: Outputs) -> int:
    """How many samples look like the same image in both: equal in three numbers, but for rounding."""

    def keys(part: Outputs) -> list[tuple[float, ...]]:
        numbers = torch.stack(
            [part.features.sum(1, dtype=torch.float64), part.logits.amax(1).double(), part.logits.amin(1).double()], 1
        )
        return [tuple(float(f"{x:.4g}") for x in row) for row in numbers.tolist()]

    known = set(keys(train))
    shared = sum(key in known for key in keys(outputs))
    return shared if shared > max(1, len(outputs) // 50) else 0  # a few may fall together by chance
