"""`OODDetector`: network, method and calibration in one object."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from adascale.core.answers import Decision, Verdict, joined
from adascale.core.errors import AdascaleWarning, InputError, NotFittedError
from adascale.core.types import Outputs, View
from adascale.decision.detector_file import DetectorFile, NetworkIdentity, save_detector
from adascale.decision.early import decisions
from adascale.decision.fitting import Outliers, Plan
from adascale.decision.tuning import MOST_CHOSEN, Tuning
from adascale.detectors import Detector
from adascale.detectors.configure import configured
from adascale.extraction.batches import batches
from adascale.extraction.extract import extract, extract_batch
from adascale.images.outliers import OUTLIERS, Sample
from adascale.images.preprocess import Preprocess
from adascale.maths.conformal import Calibration, check_alpha
from adascale.maths.split import total_needed
from adascale.network.classifier import Classifier

if TYPE_CHECKING:
    from typing_extensions import Self


class OODDetector:
    """Tells which images a classifier was never trained on.

    >>> detector = OODDetector(model).fit(id_images)        # doctest: +SKIP
    >>> verdict = detector(images)                          # doctest: +SKIP
    >>> verdict.is_ood, verdict.p_value, verdict.prediction # doctest: +SKIP

    model: any ``nn.Module`` that returns logits (or a `Classifier`, which several detectors may share). method: a name
    (see ``adascale methods``) or a configured `Detector`; by default `combined`, which adds the evidence of AdaSCALE-L,
    fDBD, GEN and ViM. parameters: the method's own, by name, e.g. ``p_max=90,
    pixels="random"``. head: the name of the last linear layer, if it cannot be found. alpha: the share of
    in-distribution images that may be flagged. split_seed: seed of the split into images to fit on and images that set
    the threshold. preprocess: how image files become inputs; it is kept with the detector and saved with it.
    """

    def __init__(
        self,
        model: nn.Module | Classifier,
        method: str | Detector = "combined",
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
        self.probe_shape: tuple[int, ...] | None = None  # that of the first images, for the probe in a detector file
        self.network = NetworkIdentity(self.classifier)
        self.reference_images = 0

    @property
    def method(self) -> Detector:
        """The method that gives the scores. A method that is assigned has to be fitted first."""
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

        ``train``: training images for the methods that learn from them, with labels if the method needs them (see
        ``adascale methods``). None of them may be among ``images``, which set the threshold. Without ``train`` such
        methods learn from one half of ``images``.

        ``tune``: whether to choose the method's parameters on outliers made from a part of the images (see
        `adascale.images.outliers`). None does so for AdaSCALE, alone or combined, if there are at least 64 images and
        its percentiles were not given; True does so for the search space of any method. ``detector.setting`` says what
        was done.
        """
        self._forget()
        plan = self.plan(tune)
        sample = Sample(self.split_seed, MOST_CHOSEN) if plan.wanted else None
        outputs, self.input_shape = self._extracted(images, plan.views, sample)
        learned = self._extracted(train, ())[0] if train is not None and plan.takes_train else None

        def outliers(chosen: Sequence[int], views: Sequence[View]) -> dict[str, Outputs] | None:
            ones = sample.stacked(chosen) if sample is not None else None
            if ones is None:
                return None
            parts = torch.split(ones, self.batch_size)
            made = {name: extract(self.classifier, map(make, parts), views) for name, make in OUTLIERS.items()}
            return {name: Outputs.cat(list(found)) for name, found in made.items()}

        return self.fit_outputs(outputs, learned, outliers, tune=tune)

    def fit_outputs(
        self,
        outputs: Outputs,
        train: Outputs | None = None,
        outliers: Mapping[str, Outputs] | Outliers | None = None,
        *,
        tune: bool | None = None,
    ) -> Self:
        """The same from extracted `Outputs`. What is fitted on, chosen on and what sets the threshold are kept apart.

        ``outliers``: the outputs of outliers made from the images ``plan(tune).chosen(len(outputs))``, by name, or a
        function that is given these indices and the views needed. Without outliers nothing is tuned.
        """
        self._forget()
        plan = self.plan(tune)
        provider = outliers if outliers is None or callable(outliers) else lambda *_: outliers
        fitted = plan.fit(outputs, self.classifier.head, train, provider)
        self._method, self.tuning, self.setting, self.reference_images, self.calibration = fitted
        self._warn_of_limits(plan.share(train is not None and plan.takes_train))
        return self

    def plan(self, tune: bool | None = None) -> Plan:
        """What `fit` will do about tuning: which views it needs, which images it makes outliers from."""
        return Plan(self._as_given, self._given, tune, self.split_seed, self.alpha)

    def _forget(self) -> None:
        self.calibration = self.tuning = None
        self._method, self.network = replace(self._as_given), NetworkIdentity(self.classifier)

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
            shape = tuple(batch.shape[1:])
            if not shapes:
                self.classifier.locate(batch)  # again, because weights may have changed since the last fit
                self.probe_shape = shape
            shapes.add(shape)
            parts.append(extract_batch(self.classifier, batch, views, labels))
            if sample is not None:
                sample.add(batch)
        if not parts:
            raise InputError("fit got no images; give in-distribution images, a few hundred if you have them.")
        return Outputs.cat(parts), shapes.pop() if len(shapes) == 1 else None

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
        """The same batch by batch, in order; undecided images are gathered over batches."""
        size, threshold = batch_size or self.batch_size, self._calibrated().threshold
        checked = (self.check_shape(batch) for batch, _ in batches(images, size))
        return decisions(self.classifier, self.method, threshold, checked, size)

    def check_shape(self, images: Tensor) -> Tensor:
        """Return the images; refuse them if they have another size than those the detector was calibrated on."""
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
        score, evidence = self.method.explained(outputs)
        logits = outputs.logits
        return Verdict(calibration.is_ood(score), score, calibration.p_value(score), logits, logits.argmax(1), evidence)

    @property
    def guarantee(self) -> str:
        """What is guaranteed about false alarms, in one sentence."""
        return self._calibrated().guarantee()

    @property
    def threshold(self) -> float:
        """Images that score above it are flagged."""
        return self._calibrated().threshold

    def save(self, path: str | Path, **about: Any) -> dict[str, Any]:
        """Write everything but the network to one safetensors file and return its record, which holds ``about``."""
        return save_detector(path, self, self._calibrated(), about)

    @classmethod
    def load(
        cls, path: str | Path | DetectorFile, model: nn.Module | Classifier, method: type[Detector] | None = None
    ) -> Self:
        """The saved detector with its network; any other network is refused. ``method``: a class of your own."""
        return cls.load_all([path], model, method)[0]

    @classmethod
    def load_all(
        cls,
        files: Sequence[str | Path | DetectorFile],
        model: nn.Module | Classifier,
        method: type[Detector] | None = None,
    ) -> list[Self]:
        """Several saved detectors of one network, which is hashed and checked once."""
        network = NetworkIdentity(model if isinstance(model, Classifier) else Classifier(model))
        loaded = []
        for path in files:
            file = path if isinstance(path, DetectorFile) else DetectorFile.read(path)
            calibration, given = file.record["calibration"], file.record["input"]
            detector = cls(network.classifier, file.method(method), alpha=calibration["alpha"])
            detector.split_seed, detector.reference_images = calibration["split_seed"], calibration["reference_images"]
            detector.preprocess = Preprocess(**given["preprocess"]) if given["preprocess"] else None
            detector.network, detector.input_shape = network, tuple(given["shape"]) if given["shape"] else None
            detector.setting = file.record.get("setting", "as given")
            detector.method.restore(file.state, network.adopt_head(file))
            detector.calibration = Calibration(file.tensors["calibration.scores"], detector.alpha)
            loaded.append(detector)
        return loaded

    def _calibrated(self) -> Calibration:
        if self.calibration is None or not self.method.is_fitted:
            raise NotFittedError("The detector is not fitted (or its method changed since): call fit(id_images) first.")
        return self.calibration

    def __repr__(self) -> str:
        state = self.calibration.guarantee() if self.calibration else "not fitted"
        return f"OODDetector({type(self.classifier.model).__name__}, {self.method}): {state}"


def _configured(method: str | Detector, parameters: Mapping[str, Any], preprocess: Preprocess | None) -> Detector:
    if isinstance(method, str):
        made = configured(method, parameters)
    elif parameters:
        raise InputError(f"Parameters {list(parameters)} came with a configured {method.name}; set them on it.")
    else:
        made = replace(method)  # a copy, because two detectors may be given the same object
    return made if preprocess is None else made.for_input(preprocess.std)
