"""Detector files: everything but the network, and the proof that a network is the one they were fitted on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adascale.core.engines import TORCH
from adascale.core.errors import DetectorFileError, HeadNotFoundError, InputError
from adascale.core.types import Head
from adascale.core.version import __version__
from adascale.decision.audit import AuditEntry, audit_of, audit_record, audit_tensors
from adascale.decision.records import check_content
from adascale.detectors import Detector, registry
from adascale.detectors.configure import configured
from adascale.maths.conformal import Calibration
from adascale.maths.rounding import alike
from adascale.network.classifier import Classifier
from adascale.storage.remote import Place, Url, as_place
from adascale.storage.tensors import ForeignFileError, TensorFileError, checksum, load_tensors, save_tensors

if TYPE_CHECKING:
    from adascale.decision.ood_detector import OODDetector

KIND = "adascale-detector"
# What the features of the probe may differ by, relative to the largest: other processors and versions of torch, low
# precisions; engines, which compute in float32 always.
_SLACK, _SLACK_OF_ENGINES = 0.02, 1e-3


@dataclass(frozen=True, eq=False)
class DetectorFile:
    """The content of a detector file, read and verified once. sha256: the checksum of the content."""

    path: Place
    tensors: Mapping[str, Tensor]
    record: Mapping[str, Any]
    sha256: str

    @classmethod
    def read(cls, path: str | Place) -> DetectorFile:
        path = as_place(path)
        if not path.is_file():
            raise DetectorFileError(f"There is no detector file {path}; make one with OODDetector.save.")
        try:
            found = load_tensors(path, KIND)
            check_content(found.record, found.tensors)
            return cls(path, *found)
        except ForeignFileError as error:
            raise DetectorFileError(f"{path} is a safetensors file, but not a detector saved by adascale.") from error
        except TensorFileError as error:
            raise DetectorFileError(f"{error} Fit the detector and save it again.") from error
        except InputError as error:
            raise unusable(path, str(error).rstrip(".")) from error

    def method(self, cls: type[Detector] | None = None) -> Detector:
        """The saved method, not yet fitted. ``cls``: its class, if it cannot be found by what the file says."""
        name, origin = self.record["method"], self.record.get("origin")
        try:
            found = cls or (registry.from_origin(origin) if origin else registry.get(name))
            for other in found.others(self.record["parameters"]):
                registry.check_loaded(other)
            return configured(found, self.record["parameters"])
        except (InputError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise DetectorFileError(
                f"{self.path} holds the method {name}, which cannot be used here: {error} "
                "Pass load(..., method=) for a class of your own, or fit again."
            ) from error

    @property
    def calibration(self) -> Calibration:
        """The saved calibration, with what was promised at the time."""
        saved = self.record["calibration"]
        return Calibration(self.tensors["calibration.scores"], saved["alpha"], saved.get("confidence"))

    @property
    def calibration_classes(self) -> Tensor | int:
        """The predicted classes of the calibration images, for `adascale.monitoring.Monitor`; files of older versions
        have none, and this is the number of classes.
        """
        return self.tensors.get("calibration.classes", int(self.record["head"]["classes"]))

    @property
    def audit(self) -> tuple[AuditEntry, ...]:
        """Which images set the threshold, with their names."""
        return audit_of(self.record, self.tensors)

    def described(self) -> dict[str, Any]:
        """The record, with the names in its log. In that of an older version, what the guarantee says is brought up to
        date.
        """
        calibration = {**self.record["calibration"], **_promise(self.calibration)}
        return {**self.record, "calibration": calibration, "audit": [asdict(one) for one in self.audit]}

    @property
    def state(self) -> dict[str, Tensor]:
        """What the method has learned."""
        return {name.removeprefix("method."): t for name, t in self.tensors.items() if name.startswith("method.")}


def unusable(path: Place, reason: object) -> DetectorFileError:
    """The error for a file whose content cannot be that of a detector."""
    return DetectorFileError(f"{path} cannot be used as a detector: {reason}. Fit the detector and save it again.")


def _promise(calibration: Calibration) -> dict[str, Any]:
    """The threshold and what it promises. range: the false-alarm rates of 90 % of detectors like this one."""
    return {
        "alpha": calibration.alpha,
        "confidence": calibration.confidence,
        "threshold": calibration.threshold if math.isfinite(calibration.threshold) else None,
        "level": calibration.level,
        "range": list(calibration.rate_range),
        "guarantee": calibration.guarantee(),
    }


def read_detectors(paths: Sequence[str | Place]) -> list[DetectorFile]:
    """The detectors of these files and folders, each once; other safetensors files in the folders are passed over."""
    found: dict[Place, DetectorFile] = {}
    for path in map(as_place, paths):
        for file in _detector_files(path) if path.is_dir() else [path]:
            try:
                found[file] = found.get(file) or DetectorFile.read(file)
            except DetectorFileError as error:
                if not (path.is_dir() and isinstance(error.__cause__, ForeignFileError)):
                    raise
    if not found:
        raise DetectorFileError(f"{paths[0]} holds no detector file (.safetensors); make one with OODDetector.save.")
    return list(found.values())


def _detector_files(folder: Place) -> list[Place]:
    return [*folder.glob("*.safetensors")] if isinstance(folder, Url) else sorted(folder.glob("*.safetensors"))


def record_of(detector: OODDetector, calibration: Calibration, about: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says about a fitted detector."""
    head, network, origin = detector.method.head_, detector.network, registry.origin(type(detector.method))
    return {
        "version": __version__,
        "method": detector.method.name,
        "parameters": detector.method.parameters,
        "setting": detector.setting,
        "fitted": detector.fitted,
        "audit": audit_record(detector.audit),
        "calibration": {
            "images": len(calibration.scores),
            "reference_images": detector.reference_images,
            "split_seed": detector.split_seed,
            **_promise(calibration),
        },
        "head": {
            "name": detector.classifier.head_name,
            "classes": head.weight.shape[0],
            "features": head.weight.shape[1],
            "fingerprint": head.fingerprint(),
        },
        "network": {
            "class": type(detector.classifier.model).__name__,
            "fingerprint": network.fingerprint,
            "precision": detector.classifier.precision,
            **({} if detector.classifier.engine == TORCH else {"engine": detector.classifier.engine}),
        },
        "input": {
            "shape": detector.input_shape,
            "preprocess": asdict(detector.preprocess) if detector.preprocess else None,
        },
        **({"class_names": list(detector.class_names)} if detector.class_names else {}),
        "about": about,
        **({} if origin["package"] == "adascale" else {"origin": origin}),
    }


def save_detector(
    path: str | Place, detector: OODDetector, calibration: Calibration, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a fitted detector; see `OODDetector.save`. Returns the record as it stands in the file."""
    record = record_of(detector, calibration, about)
    tensors = {f"method.{name}": tensor for name, tensor in detector.method.state().items()}
    tensors["calibration.scores"] = calibration.scores
    if detector.calibration_classes is not None:
        tensors["calibration.classes"] = detector.calibration_classes
    tensors |= audit_tensors(detector.audit)
    if shape := detector.input_shape or detector.probe_shape:
        tensors["probe.images"], tensors["probe.features"] = detector.network.probe(shape)
    return save_tensors(as_place(path), tensors, record, KIND)


class NetworkIdentity:
    """What tells a network from others. Detectors that share it hash and probe the network once.

    It describes the network at one time: make a new one after the weights have changed.
    """

    def __init__(self, classifier: Classifier, fingerprint: str | None = None) -> None:
        self.classifier = classifier
        self._fingerprint = fingerprint
        self._probes: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        self._proved = ""

    @cached_property
    def fingerprint(self) -> str:
        return self._fingerprint or self.classifier.fingerprint()

    def probe(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Two random images of this shape, and their features: a sample of what the network computes."""
        if shape not in self._probes:
            images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
            if not self.classifier.located:  # all passes of a resumed run were there; else the layout would be another
                self.classifier.locate(images.to(self.classifier.device))
            self._probes[shape] = images, self.classifier.forward(images)[0].float().cpu()
        return self._probes[shape]

    def adopt_head(self, file: DetectorFile) -> Head:
        """The network's head, after proof that this is the network of the file: layer, weights, behaviour."""
        probe = {name: tensor for name, tensor in file.tensors.items() if name.startswith("probe.")}
        claim = checksum(probe, str((file.record["head"], file.record["network"])))
        if claim != self._proved:
            before, saved = self.classifier.precision, file.record
            if difference := self._difference(file):
                self.classifier.precision = before
                raise DetectorFileError(
                    f"{file.path} was fitted on a {saved['network']['class']} with the head {saved['head']['name']!r}"
                    f"{difference}. Load it with the network it was fitted on, or fit again."
                )
            self._proved = claim
        return self.classifier.head

    def _difference(self, file: DetectorFile) -> str:
        """How this network differs from that of the file; empty if it is the same. Sets its head and its precision."""
        classifier, network, saved = self.classifier, file.record["network"], file.record["head"]
        given, now, precision = type(classifier.model).__name__, classifier.precision, network.get("precision")
        if classifier.head_name not in (None, saved["name"]):
            return f"; this one is used with the head {classifier.head_name!r}"
        if saved["name"] not in dict(classifier.model.named_modules()):
            return f"; this {given} has no such layer"
        if self.fingerprint != network["fingerprint"]:
            return f"; this {given} has other layers, weights or precision"
        if now != precision and (now is not None or classifier.head_name is not None):
            return f" in {precision or 'full precision'}; this one runs in {now or 'full precision'}"
        classifier.precision = precision
        classifier.adopt(saved["name"])
        if "probe.images" in file.tensors:
            images = file.tensors["probe.images"]
            try:
                features, _ = classifier.locate(images).forward(images)
            except HeadNotFoundError:
                return f"; in this {given} it is not the head"
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                return f"; this {given} cannot take the probe in the file ({' '.join(str(error).split())[:200]})"
            engines = {network.get("engine", TORCH), classifier.engine}
            slack = _SLACK if engines == {TORCH} else _SLACK_OF_ENGINES
            if not alike(features, file.tensors["probe.features"], slack):
                by = "" if engines == {TORCH} else f" with engine={classifier.engine!r}"
                return f"; this {given} has its weights, but computes something else{by}"
        same_head = classifier.head.fingerprint() == saved["fingerprint"]
        return "" if same_head else f"; the head of this {given} has other weights"
