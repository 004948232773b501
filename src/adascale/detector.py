"""`OODDetector`: model + method + calibration in one object. What most users need, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from adascale import detectors, store
from adascale.calibrate import Calibration, check_alpha, split
from adascale.data import Preprocess
from adascale.detectors import Detector
from adascale.errors import AdascaleWarning, DetectorFileError, InputError, NotFittedError
from adascale.extract import batches, extract_batch
from adascale.model import Classifier
from adascale.types import Head, Outputs, Verdict
from adascale.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self


class OODDetector:
    """Tells which images a classifier was never trained on.

    >>> detector = OODDetector(model).fit(id_images)        # doctest: +SKIP
    >>> verdict = detector(images)                          # doctest: +SKIP
    >>> verdict.is_ood, verdict.p_value, verdict.prediction # doctest: +SKIP

    model: any ``nn.Module`` that returns logits. method: a name (see ``adascale methods``) or a configured
    `Detector`. parameters: the method's own, by name, e.g. ``p_max=90, pixels="random"``. head: the name of the last
    linear layer, where it cannot be found. alpha: the share of in-distribution images that may be flagged.
    split_seed: of the draw that parts the images into those fitted on and those that set the threshold.
    preprocess: how image files become inputs; kept with the detector and saved with it.
    """

    def __init__(
        self,
        model: nn.Module,
        method: str | Detector = "adascale_a",
        *,
        head: str | None = None,
        alpha: float = 0.05,
        split_seed: int = 0,
        batch_size: int = 32,
        preprocess: Preprocess | None = None,
        **parameters: Any,
    ) -> None:
        check_alpha(alpha)
        self.classifier = Classifier(model, head)
        self.method = _configured(method, parameters)
        self.alpha, self.split_seed, self.batch_size, self.preprocess = alpha, split_seed, batch_size, preprocess
        self.calibration: Calibration | None = None
        self.input_shape: tuple[int, ...] | None = None
        self.reference_images = 0

    def fit(self, images: Any) -> Self:
        """Learn from in-distribution images: a tensor, a DataLoader, any iterable of batches. No labels needed."""
        self.calibration = None
        shapes: set[tuple[int, ...]] = set()
        parts = []
        for batch, labels in batches(images, self.batch_size):
            shapes.add(tuple(batch.shape[1:]))
            parts.append(extract_batch(self.classifier, batch, self.method.views, labels))
        if not parts:
            raise InputError("fit got no images; give at least 2 (19 to promise at most 5 % false alarms).")
        self.input_shape = shapes.pop() if len(shapes) == 1 else None
        return self.fit_outputs(Outputs.cat(parts))

    def fit_outputs(self, outputs: Outputs) -> Self:
        """The same from extracted `Outputs`. What is fitted on and what sets the threshold are kept apart."""
        n, head = len(outputs), self.classifier.head
        if self.method.fits_on == "nothing":
            reference, held_out = torch.arange(0), torch.arange(n)
        else:
            reference, held_out = split(n, self.split_seed)
            if not len(reference):
                raise InputError(f"fit got {n} image; {self.method.name} needs one to learn from and one to calibrate.")
        self.method.fit(outputs[reference], head)
        self.calibration = Calibration(self.method.score(outputs[held_out]), self.alpha)
        self.reference_images = len(reference)
        if self.calibration.level > self.alpha:
            warnings.warn(self.calibration.guarantee(), AdascaleWarning, stacklevel=2)
        return self

    def __call__(self, images: Any) -> Verdict:
        """The verdict for these images."""
        parts = list(self.stream(images))
        if not parts:
            raise InputError("There are no images to judge; give a tensor (N, C, H, W) or batches.")
        fields = ("is_ood", "score", "p_value", "logits", "prediction")
        return Verdict(*(torch.cat([getattr(part, name) for part in parts]) for name in fields))

    def stream(self, images: Any) -> Iterator[Verdict]:
        """Verdicts batch by batch, for more images than fit in memory."""
        for batch, _ in batches(images, self.batch_size):
            if self.input_shape is not None and tuple(batch.shape[1:]) != self.input_shape:
                raise InputError(
                    f"Images are {tuple(batch.shape[1:])}; the detector was calibrated on {self.input_shape}. "
                    "Resize them, or fit again at this size."
                )
            yield self.judge(extract_batch(self.classifier, batch, self.method.views))

    def score(self, images: Any) -> Tensor:
        """OOD scores alone (N,), float64, higher = more OOD."""
        return self(images).score

    def judge(self, outputs: Outputs) -> Verdict:
        """The verdict from extracted `Outputs`."""
        calibration = self._calibrated()
        score = self.method.score(outputs)
        return Verdict(
            calibration.is_ood(score),
            score,
            calibration.p_value(score),
            outputs.logits,
            outputs.logits.argmax(1),
        )

    @property
    def guarantee(self) -> str:
        """What is promised about false alarms, in one sentence."""
        return self._calibrated().guarantee()

    @property
    def threshold(self) -> float:
        """Images that score above it are flagged."""
        return self._calibrated().threshold

    def save(self, path: str | Path, **about: Any) -> None:
        """Write everything but the network to one safetensors file. ``about`` is kept in its ``about`` record."""
        calibration, head = self._calibrated(), self.method.head_
        record = {
            "version": __version__,
            "method": self.method.name,
            "parameters": self.method.parameters,
            "calibration": {
                "alpha": self.alpha,
                "images": len(calibration.scores),
                "reference_images": self.reference_images,
                "split_seed": self.split_seed,
                "guarantee": calibration.guarantee(),
            },
            "head": {
                "name": self.classifier.head_name,
                "classes": head.weight.shape[0],
                "features": head.weight.shape[1],
                "fingerprint": head.fingerprint(),
            },
            "network": {
                "class": type(self.classifier.model).__name__,
                "fingerprint": self.classifier.fingerprint(),
            },
            "input": {
                "shape": self.input_shape,
                "preprocess": asdict(self.preprocess) if self.preprocess else None,
            },
            "about": about,
        }
        fitted = {f"method.{name}": tensor for name, tensor in self.method.state().items()}
        store.write(path, {"calibration.scores": calibration.scores, **fitted}, record)

    @classmethod
    def load(cls, path: str | Path, model: nn.Module) -> Self:
        """The saved detector beside its network; refused for any other network."""
        tensors, record = store.read(path)
        preprocess = record["input"]["preprocess"]
        detector = cls(
            model,
            detectors.get(record["method"])(**record["parameters"]),
            alpha=record["calibration"]["alpha"],
            split_seed=record["calibration"]["split_seed"],
            preprocess=Preprocess(**preprocess) if preprocess else None,
        )
        head = detector._adopt_head(record, path)
        shape = record["input"]["shape"]
        detector.input_shape = tuple(shape) if shape else None
        detector.reference_images = record["calibration"]["reference_images"]
        state = {name[len("method.") :]: value for name, value in tensors.items() if name.startswith("method.")}
        detector.method.restore(state, head)
        detector.calibration = Calibration(tensors["calibration.scores"], detector.alpha)
        return detector

    def _adopt_head(self, record: dict[str, Any], path: str | Path) -> Head:
        saved = record["head"]
        given = type(self.classifier.model).__name__
        modules = dict(self.classifier.model.named_modules())
        if saved["name"] not in modules:
            raise DetectorFileError(
                f"{path} was fitted on a {record['network']['class']} with the head {saved['name']!r}; "
                f"this {given} has no such layer. Load it beside the network it was fitted on, or fit again."
            )
        self.classifier.head_name = saved["name"]
        head = self.classifier.head
        if head.fingerprint() != saved["fingerprint"]:
            raise DetectorFileError(
                f"{path} was fitted on a head with {saved['classes']} classes, {saved['features']} features and other "
                f"weights than this {given}'s. Load it beside the network it was fitted on, or fit again."
            )
        if self.classifier.fingerprint() != record["network"]["fingerprint"]:
            raise DetectorFileError(
                f"{path} was fitted on the same head, but other weights (or another precision) of the {given} below "
                "it; its threshold does not hold here. Fit again."
            )
        return head

    def _calibrated(self) -> Calibration:
        if self.calibration is None or not self.method.is_fitted:
            raise NotFittedError("The detector is not fitted (or its method changed since): call fit(id_images) first.")
        return self.calibration

    def __repr__(self) -> str:
        state = self.calibration.guarantee() if self.calibration else "not fitted"
        return f"OODDetector({type(self.classifier.model).__name__}, {self.method}): {state}"


def _configured(method: str | Detector, parameters: dict[str, Any]) -> Detector:
    if isinstance(method, Detector):
        if parameters:
            raise InputError(f"Parameters {list(parameters)} came beside a configured {method.name}; set them on it.")
        return method
    cls = detectors.get(method)
    if unknown := [name for name in parameters if name not in cls._field_names()]:
        known = ", ".join(sorted(cls._field_names())) or "none"
        raise InputError(f"{method} has no parameter {unknown[0]!r}; it has: {known}.")
    return cls(**parameters)
