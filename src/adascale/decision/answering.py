"""How a fitted detector answers: verdicts, decisions, scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from adascale.core.answers import Decision, Verdict, joined
from adascale.core.errors import AdascaleWarning, InputError, NotFittedError
from adascale.core.types import Outputs
from adascale.decision.early import named_decisions
from adascale.decision.explaining import Explanation, explain_one
from adascale.decision.inputs import Reader
from adascale.detectors import Detector
from adascale.extraction.extract import extract_batch
from adascale.extraction.given import Given
from adascale.images.preprocess import Preprocess
from adascale.maths.conformal import Calibration
from adascale.maths.discoveries import discoveries, limits
from adascale.maths.promise import check_fdr
from adascale.network.changes import Weights
from adascale.network.classifier import Classifier

Array = npt.NDArray[Any]


class Answering:
    """The questions that `OODDetector` answers once it is fitted; it says how the fields come about."""

    classifier: Classifier
    method: Detector
    calibration: Calibration | None
    preprocess: Preprocess | None
    input_shape: tuple[int, ...] | None
    class_names: tuple[str, ...]
    batch_size: int
    _reader: Reader
    _weights: Weights | None

    def _batches(self, images: Any, skip: bool, batch_size: int | None = None) -> Iterator[Given]:
        """The images in batches of inputs, all of the size that the detector was calibrated on."""
        size = batch_size or self.batch_size
        self._check_weights()
        return self._reader.batches(images, self.preprocess, size, skip, self.check_shape)

    def __call__(self, images: Any, *, skip_unreadable: bool = False) -> Verdict:
        """The verdict for these images; `Verdict.names` says which they are.

        An image that cannot be read is an error that names it. ``skip_unreadable``: judge the others, with a warning.
        """
        return joined(list(self.stream(images, skip_unreadable=skip_unreadable)))

    def stream(self, images: Any, *, skip_unreadable: bool = False) -> Iterator[Verdict]:
        """Verdicts batch by batch, for more images than fit in memory."""
        for given in self._batches(images, skip_unreadable):
            verdict = self.judge(extract_batch(self.classifier, given.images, self.method.wants))
            yield replace(verdict, names=given.names)

    def is_ood(self, images: Any) -> Tensor:
        """Decisions alone (N,), the same as ``detector(images).is_ood`` and much cheaper: see `decide`."""
        return self.decide(images).is_ood

    def decide(self, images: Any, *, skip_unreadable: bool = False) -> Decision:
        """Decisions without scores: the perturbed pass is made only where it can still change the answer."""
        return joined(list(self.decisions(images, skip_unreadable=skip_unreadable)))

    def decisions(
        self, images: Any, batch_size: int | None = None, *, skip_unreadable: bool = False
    ) -> Iterator[Decision]:
        """The same batch by batch, in order; undecided images are gathered over batches."""
        size, threshold = batch_size or self.batch_size, self._calibrated().threshold
        checked = self._batches(images, skip_unreadable, size)
        found = named_decisions(self.classifier, self.method, threshold, checked, size)
        return (replace(decision, class_names=self.class_names) for decision in found)

    def check_shape(self, images: Tensor) -> Tensor:
        """Return the images; refuse them if they have another size than those the detector was calibrated on."""
        if self.input_shape is not None and tuple(images.shape[1:]) != self.input_shape:
            last = tuple(images.movedim(-1, 1).shape[1:]) == self.input_shape
            advice = "Put the channels first" if last else "Resize them, or fit again at this size"
            raise InputError(
                f"Images are {tuple(images.shape[1:])}; the detector was calibrated on {self.input_shape}. {advice}."
            )
        return images

    def discoveries(self, images: Any, fdr: float = 0.1) -> Verdict:
        """The verdict for a batch as a whole: ``is_ood`` marks the discoveries, of which at most the share ``fdr`` is
        in-distribution on average (Benjamini-Hochberg on the p-values, see `adascale.maths.discoveries`).

        Whether an image is a discovery depends on all the images given. Neither ``alpha`` nor ``confidence`` matters.
        """
        check_fdr(fdr)
        verdict, calibration = self(images), self._calibrated()
        found = discoveries(verdict.p_value, fdr)
        if not found.any() and (reason := limits(len(calibration.scores), len(verdict), fdr)):
            warnings.warn(reason, AdascaleWarning, stacklevel=2)
        return replace(verdict, is_ood=found)

    def explain(self, image: Any) -> Explanation:
        """Where the verdict on one image comes from: every number, traced back (see `Explanation`)."""
        return explain_one(self, list(self._batches(image, skip=False)))

    def score(self, images: Any) -> Tensor:
        """OOD scores alone (N,), float64, higher = more OOD."""
        return self(images).score

    def score_samples(self, images: Any) -> Array:
        """Minus the scores (N,), higher = more in-distribution: what scikit-learn's outlier detectors call so."""
        known: Array = np.negative(self.score(images).numpy())
        return known

    def decision_function(self, images: Any) -> Array:
        """How far the scores are below the threshold (N,): negative for images that are flagged, as in scikit-learn."""
        below: Array = self.threshold + self.score_samples(images)
        return below

    def predict(self, images: Any) -> Array:
        """-1 for images that are flagged, 1 for the others (N,), as in scikit-learn; decided as `is_ood` does."""
        return np.where(self.is_ood(images).numpy(), -1, 1)

    def judge(self, outputs: Outputs) -> Verdict:
        """The verdict from extracted `Outputs`."""
        calibration = self._calibrated()
        score, evidence = self.method.explained(outputs)
        return Verdict(
            *(calibration.is_ood(score), score, calibration.p_value(score), outputs.logits, outputs.logits.argmax(1)),
            evidence=evidence,
            class_names=self.class_names,
        )

    @property
    def guarantee(self) -> str:
        """What is guaranteed about false alarms, and what that means for one detector, in a sentence or two."""
        return self._calibrated().guarantee()

    @property
    def threshold(self) -> float:
        """Images that score above it are flagged."""
        return self._calibrated().threshold

    def _note_weights(self) -> None:
        """From now on, the weights of the network must stay as they are."""
        self._weights = Weights(self.classifier.model)

    def __getstate__(self) -> dict[str, Any]:
        """The state without what is known of these tensors: a copy has its own."""
        return {**vars(self), "_weights": None}

    def _check_weights(self) -> None:
        if self._weights is None:
            self._note_weights()
        if self.calibration is not None and self._weights is not None and not self._weights.are_unchanged():
            raise NotFittedError(
                "The weights of the network have changed since the detector was fitted or loaded; call fit(id_images) "
                "again. Classifier(model, copy=True) keeps a copy that does not change."
            )

    def _calibrated(self) -> Calibration:
        if self.calibration is None or not self.method.is_fitted:
            raise NotFittedError("The detector is not fitted (or its method changed since): call fit(id_images) first.")
        return self.calibration
