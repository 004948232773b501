"""`OODDetector`: model + method + calibration in one object. What most users need, and nothing else."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from adascale import detectors
from adascale.core.answers import Decision, Verdict, joined
from adascale.core.errors import AdascaleWarning, InputError, NotFittedError
from adascale.core.types import Outputs, View
from adascale.core.version import __version__
from adascale.decision.early import decisions
from adascale.decision.identity import adopt_head, saved_method, shared_rows
from adascale.decision.tuning import MOST_CHOSEN, Plan, Tuning, chosen_count, search_made_up
from adascale.detectors import Detector
from adascale.extraction.batches import batches
from adascale.extraction.extract import extract_batch
from adascale.images.outliers import OUTLIERS, Sample, Tamper
from adascale.images.preprocess import Preprocess
from adascale.maths.conformal import Calibration, check_alpha
from adascale.maths.split import split, total_needed
from adascale.network.classifier import Classifier
from adascale.storage import tensors as store

if TYPE_CHECKING:
    from typing_extensions import Self


class OODDetector:
    """Tells which images a classifier was never trained on.

    >>> detector = OODDetector(model).fit(id_images)        # doctest: +SKIP
    >>> verdict = detector(images)                          # doctest: +SKIP
    >>> verdict.is_ood, verdict.p_value, verdict.prediction # doctest: +SKIP

    model: any ``nn.Module`` that returns logits (or a `Classifier`, which several detectors may share). method: a name
    (see ``adascale methods``) or a configured `Detector`. parameters: the method's own, by name, e.g. ``p_max=90,
    pixels="random"``. head: the name of the last linear layer, where it cannot be found. alpha: the share of
    in-distribution images that may be flagged. split_seed: of the draw that parts the images into those fitted on and
    those that set the threshold. preprocess: how image files become inputs; kept with the detector and saved with it.
    """

    def __init__(
        self,
        model: nn.Module | Classifier,
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
        self.classifier = model if isinstance(model, Classifier) else Classifier(model, head)
        self._method = _configured(method, parameters, preprocess)
        self._as_given = self._method
        self._given = frozenset(parameters if isinstance(method, str) else self._method.parameters)
        self.split_seed, self.batch_size, self.preprocess = split_seed, batch_size, preprocess
        self._alpha = alpha
        self.calibration: Calibration | None = None
        self.tuning: Tuning | None = None
        self.setting = "not fitted"  # where the parameters come from, in one sentence
        self.input_shape: tuple[int, ...] | None = None  # None: not known, or images of several sizes
        self._probe_shape: tuple[int, ...] | None = None
        self.reference_images = 0

    @property
    def method(self) -> Detector:
        """What gives the scores; another one has to be fitted first."""
        return self._method

    @method.setter
    def method(self, method: Detector) -> None:
        self._method, self.calibration, self.tuning = method, None, None
        self._as_given, self._given = method, frozenset(method.parameters)

    @property
    def alpha(self) -> float:
        """The share of in-distribution images that may be flagged; assigning it moves the threshold."""
        return self._alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        check_alpha(alpha)
        self._alpha = alpha
        if self.calibration is not None:
            self.calibration = Calibration(self.calibration.scores, alpha)

    def fit(self, images: Any, train: Any = None, *, tune: bool | None = None) -> Self:
        """Learn from in-distribution images: a tensor, a DataLoader, any iterable of batches. No labels needed.

        ``train``: training images, with labels where the method says so, for the methods that learn from them (see
        ``adascale methods``); none of them may be among ``images``, which set the threshold. Without it such methods
        learn from one half of ``images``.

        ``tune``: choose the method's parameters on outliers made from a part of the images (see `adascale.outliers`).
        None does so for AdaSCALE from 64 images on, unless its percentiles were given; True for any method's search
        space; False never. ``detector.setting`` says what was done.
        """
        self.calibration = None
        plan = self.plan(tune)
        sample = Sample(self.split_seed, MOST_CHOSEN) if plan.wanted else None
        outputs, self.input_shape = self._extracted(images, plan.views, sample)
        learns = train is not None and self.method.fits_on in ("train", "train+labels")
        learned = self._extracted(train, ())[0] if learns else None
        outliers = None
        if sample is not None and (chosen := plan.chosen(len(outputs))):
            ones = sample.stacked(chosen)
            if ones is not None:
                outliers = {name: self._outputs_of(make, ones, plan.views) for name, make in OUTLIERS.items()}
        return self.fit_outputs(outputs, learned, outliers, tune=tune)

    def fit_outputs(
        self,
        outputs: Outputs,
        train: Outputs | None = None,
        outliers: Mapping[str, Outputs] | None = None,
        *,
        tune: bool | None = None,
    ) -> Self:
        """The same from extracted `Outputs`. What is fitted on, chosen on and what sets the threshold are kept apart.

        ``outliers``: those made from the images ``plan(tune).chosen(len(outputs))``; without them nothing is tuned.
        """
        self.calibration = self.tuning = None
        n, head, plan = len(outputs), self.classifier.head, self.plan(tune)
        self._method, learns_from = replace(self._as_given), self._as_given.fits_on
        if learns_from in ("train", "train+labels") and train is not None:
            if shared := shared_rows(outputs, train):
                raise InputError(
                    f"{shared} of the {n} images that set the threshold are among the training images; "
                    "give other images, else no false-alarm rate can be promised."
                )
            share = 0.0
        else:
            share = self._share()
        parts = split(n, self.split_seed, share, chosen_count(n) if outliers else 0)
        if share and not len(parts.fitted):
            raise InputError(f"fit got {n} image; {self.method.name} needs one to learn from and one to calibrate.")
        reference = outputs[parts.fitted] if share else train if learns_from != "nothing" else None
        if outliers:
            known = outputs[parts.chosen]
            self.tuning = search_made_up(self.method, plan.points, reference, head, known, outliers)
            self._method = replace(self._method, **self.tuning.chosen)
        self.method.fit(reference, head)
        held_out = outputs[parts.held_out]
        calibration = Calibration(self.method.score(held_out), self.alpha)
        if not math.isfinite(calibration.threshold) or calibration.scores.isnan().any():
            broken = int((~calibration.scores.isfinite()).sum())
            raise InputError(
                f"{broken} of {len(held_out)} calibration images give NaN or infinite activations, so no threshold can "
                "be set; check the images and the preprocessing."
            )
        self.calibration = calibration
        self.setting = str(self.tuning) if self.tuning else plan.why_not(n)
        self.reference_images = 0 if reference is None else len(reference)
        self._warn_of_limits(share)
        return self

    def plan(self, tune: bool | None = None) -> Plan:
        """What `fit` will do about tuning: which views it needs, which images it makes outliers from."""
        return Plan(self._as_given, self._given, tune, self.split_seed, self._share(), self.alpha)

    def _share(self) -> float:
        """The share of the images that the method learns from; the others set the threshold."""
        return {"nothing": 0.0, "val": 0.2}.get(self.method.fits_on, 0.5)

    def _warn_of_limits(self, share: float) -> None:
        calibration = self._calibrated()
        if calibration.level > self.alpha:
            total = total_needed(self.alpha, share)
            hint = f" Give fit at least {total} images for that." if share else ""
            warnings.warn(calibration.guarantee() + hint, AdascaleWarning, stacklevel=3)
        if broken := int(calibration.scores.isinf().sum()):
            warnings.warn(
                f"{broken} calibration images give NaN or infinite activations; they count as out-of-distribution.",
                AdascaleWarning,
                stacklevel=3,
            )

    def _extracted(
        self, images: Any, views: Sequence[View], sample: Sample | None = None
    ) -> tuple[Outputs, tuple[int, ...] | None]:
        shapes: set[tuple[int, ...]] = set()
        parts = []
        for batch, labels in batches(images, self.batch_size):
            if not shapes:
                self.classifier.locate(batch)  # anew: the weights may have changed since the last fit
                self._probe_shape = tuple(batch.shape[1:])
            shapes.add(tuple(batch.shape[1:]))
            parts.append(extract_batch(self.classifier, batch, views, labels))
            if sample is not None:
                sample.add(batch)
        if not parts:
            raise InputError("fit got no images; give in-distribution images, some hundred if you have them.")
        return Outputs.cat(parts), shapes.pop() if len(shapes) == 1 else None

    def _outputs_of(self, make: Tamper, images: Tensor, views: Sequence[View]) -> Outputs:
        made = (make(batch) for batch in images.split(self.batch_size))  # type: ignore[no-untyped-call]
        return Outputs.cat([extract_batch(self.classifier, batch, views) for batch in made])

    def __call__(self, images: Any) -> Verdict:
        """The verdict for these images."""
        return joined(list(self.stream(images)))

    def stream(self, images: Any) -> Iterator[Verdict]:
        """Verdicts batch by batch, for more images than fit in memory."""
        for batch, _ in batches(images, self.batch_size):
            self.check_shape(batch)
            yield self.judge(extract_batch(self.classifier, batch, self.method.views))

    def is_ood(self, images: Any) -> Tensor:
        """Decisions alone (N,), the same as ``detector(images).is_ood`` and much cheaper: see `decide`."""
        return self.decide(images).is_ood

    def decide(self, images: Any) -> Decision:
        """Decisions without scores: the perturbed pass is made only where it can still change the answer."""
        return joined(list(self.decisions(images)))

    def decisions(self, images: Any, batch_size: int | None = None) -> Iterator[Decision]:
        """The same batch by batch, in order; open cases are gathered over batches."""
        size, threshold = batch_size or self.batch_size, self._calibrated().threshold
        checked = (self.check_shape(batch) for batch, _ in batches(images, size))
        return decisions(self.classifier, self.method, threshold, checked, size)

    def check_shape(self, images: Tensor) -> Tensor:
        """The images; refuse images of another size than the detector was calibrated on."""
        if self.input_shape is not None and tuple(images.shape[1:]) != self.input_shape:
            raise InputError(
                f"Images are {tuple(images.shape[1:])}; the detector was calibrated on {self.input_shape}. "
                "Resize them, or fit again at this size."
            )
        return images

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
            "setting": self.setting,
            "calibration": {
                "alpha": calibration.alpha,
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
                "precision": self.classifier.precision,
            },
            "input": {
                "shape": self.input_shape,
                "preprocess": asdict(self.preprocess) if self.preprocess else None,
            },
            "about": about,
        }
        tensors = {f"method.{name}": tensor for name, tensor in self.method.state().items()}
        tensors["calibration.scores"] = calibration.scores
        if shape := self.input_shape or self._probe_shape:
            tensors["probe.images"] = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
            tensors["probe.features"] = self.classifier.forward(tensors["probe.images"])[0].float().cpu()
        store.write(path, tensors, record)

    @classmethod
    def load(cls, path: str | Path, model: nn.Module | Classifier, method: type[Detector] | None = None) -> Self:
        """The saved detector beside its network; refused for any other network. ``method``: a class of your own."""
        tensors, record = store.read(path)
        preprocess = record["input"]["preprocess"]
        detector = cls(
            model,
            saved_method(record, method, path),
            alpha=record["calibration"]["alpha"],
            split_seed=record["calibration"]["split_seed"],
            preprocess=Preprocess(**preprocess) if preprocess else None,
        )
        shape = record["input"]["shape"]
        detector.input_shape = tuple(shape) if shape else None
        head = adopt_head(detector.classifier, record, tensors, path)
        detector.setting = record.get("setting", "as given")
        detector.reference_images = record["calibration"]["reference_images"]
        state = {name[len("method.") :]: value for name, value in tensors.items() if name.startswith("method.")}
        detector.method.restore(state, head)
        detector.calibration = Calibration(tensors["calibration.scores"], detector.alpha)
        return detector

    def _calibrated(self) -> Calibration:
        if self.calibration is None or not self.method.is_fitted:
            raise NotFittedError("The detector is not fitted (or its method changed since): call fit(id_images) first.")
        return self.calibration

    def __repr__(self) -> str:
        state = self.calibration.guarantee() if self.calibration else "not fitted"
        return f"OODDetector({type(self.classifier.model).__name__}, {self.method}): {state}"


def _configured(method: str | Detector, parameters: dict[str, Any], preprocess: Preprocess | None) -> Detector:
    if isinstance(method, Detector):
        if parameters:
            raise InputError(f"Parameters {list(parameters)} came beside a configured {method.name}; set them on it.")
        made = replace(method)  # a copy: two detectors may be given the same one
        return made if preprocess is None else made.for_input(preprocess.std)
    cls = detectors.get(method)
    if unknown := [name for name in parameters if name not in cls._field_names()]:
        known = ", ".join(sorted(cls._field_names())) or "none"
        raise InputError(f"{method} has no parameter {unknown[0]!r}; it has: {known}.")
    return _configured(cls(**parameters), {}, preprocess)
