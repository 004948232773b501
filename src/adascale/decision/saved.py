"""Saved detectors with their networks: given ones, or those that the files name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from torch import nn

from adascale.core.engines import TORCH
from adascale.core.errors import DetectorFileError, InputError
from adascale.decision.audit import audit_of
from adascale.decision.detector_file import DetectorFile, NetworkIdentity, unusable
from adascale.decision.records import check_learned
from adascale.detectors import Detector
from adascale.images.preprocess import as_preprocess
from adascale.maths.conformal import Calibration
from adascale.network.classifier import Classifier
from adascale.network.ready import ready_network
from adascale.network.specs import runs_code
from adascale.storage.remote import Place

if TYPE_CHECKING:
    from adascale.decision.ood_detector import OODDetector

Made = TypeVar("Made", bound="OODDetector")


def load_detectors(
    cls: type[Made],
    files: Sequence[str | Place | DetectorFile],
    model: nn.Module | Classifier | None,
    method: type[Detector] | None,
    alpha: float | None = None,
    confidence: float | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
    trust: bool = False,
    engine: str | None = None,
) -> list[Made]:
    """See `OODDetector.load_all`."""
    read = [file if isinstance(file, DetectorFile) else DetectorFile.read(file) for file in files]
    if model is None:
        model = named_network(read[0], weights, device, trust, engine or TORCH)
    network = NetworkIdentity(classifier_of(model, engine=engine))
    return [_restored(cls, file, network, method, alpha, confidence) for file in read]


def classifier_of(model: nn.Module | Classifier, head: str | None = None, engine: str | None = None) -> Classifier:
    """The network as a `Classifier` with this engine; None: torch, or that of a given `Classifier`."""
    if not isinstance(model, Classifier):
        return Classifier(model, head, engine=engine or TORCH)
    if engine not in (None, model.engine):
        raise InputError(
            f"engine={engine!r}, and the Classifier that was given has engine={model.engine!r}; say it there: "
            f"Classifier(model, engine={engine!r})."
        )
    return model


def named_network(
    file: DetectorFile, weights: str | Path | None, device: str, trust: bool, engine: str = TORCH
) -> Classifier:
    """The network that a detector file names, with its weights. A Python file is run only if the user trusts it."""
    spec, known = trusted_spec(file, trust), file.record["about"].get("weights")
    if weights is None and known is not None and not Path(known).is_file():
        raise DetectorFileError(f"{file.path} names the weights {known}, which are not there; pass weights=.")
    return ready_network(spec, weights or known, device, engine=engine)[0]


def trusted_spec(file: DetectorFile, trust: bool) -> str:
    """The text of the network that a detector file names. If it is a Python file, the user has to trust it."""
    spec: str | None = file.record["about"].get("model")
    if spec is None:
        raise DetectorFileError(f"{file.path} does not say which network it belongs to; pass model=.")
    if runs_code(spec) and not trust:
        raise DetectorFileError(
            f"{file.path} names the network {spec}, and loading it runs that Python file; pass trust=True if you "
            "trust it, or the network itself as model=."
        )
    return spec


def _restored(
    cls: type[Made],
    file: DetectorFile,
    network: NetworkIdentity,
    method: type[Detector] | None,
    alpha: float | None,
    confidence: float | None,
) -> Made:
    record = file.record
    calibration, given = record["calibration"], record["input"]
    names = record.get("class_names") or network.classifier.class_names
    rate = calibration["alpha"] if alpha is None else alpha
    sure = calibration.get("confidence") if confidence is None else confidence
    detector = cls(network.classifier, file.method(method), alpha=rate, confidence=sure, classes=names or None)
    detector.split_seed, detector.reference_images = calibration["split_seed"], calibration["reference_images"]
    detector.preprocess = as_preprocess(given.get("preprocess"))
    detector.network, detector.input_shape = network, tuple(given["shape"]) if given.get("shape") else None
    detector.setting = record.get("setting", "as given")
    detector.about = dict(record["about"])
    head = network.adopt_head(file)
    try:
        check_learned(detector.method.restore(file.state, head), head)
    except (InputError, KeyError, TypeError, IndexError, RuntimeError, AttributeError) as error:
        raise unusable(file.path, " ".join(str(error).split()).rstrip(".")) from error
    detector.calibration = Calibration(file.tensors["calibration.scores"], rate, sure)
    detector.fitted, detector.audit = record.get("fitted") or {}, audit_of(record, file.tensors)
    detector.calibration_classes = file.tensors.get("calibration.classes")
    detector._note_weights()
    return detector
