"""CARef and CADRef: how far the features are from the mean of their predicted class, relative to their size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import ClassSums, MeanFeatures
from adascale.detectors.shaping import LogitScore
from adascale.detectors.statistics import Course, Each, Together
from adascale.detectors.traits import Space
from adascale.maths.activations import energy, generalised_entropy, largest_probability

_LEAST = 1e-12
# Scores of logits, higher = more in-distribution; the method divides by them, so they count as at least 1e-12.
_CONFIDENCES: Mapping[LogitScore, Callable[[Tensor], Tensor]] = {
    "energy": energy,
    "mls": lambda logits: logits.amax(1).double(),
    "msp": largest_probability,
    "gen": lambda logits: 1 / generalised_entropy(logits, 0.1, max(10, logits.shape[1] // 10)).clamp_min(_LEAST),
}


@dataclass
class CARef(Detector):
    """The class-aware relative feature error of Ling et al., "CADRef: robust out-of-distribution detection via
    class-aware decoupled relative feature leveraging", CVPR 2025.

    ``m_c`` = mean feature of the training samples predicted as ``c``; with ``c`` the predicted class,
    ``S = ||a - m_c||_1 / ||a||_1``, whose divisor counts as at least 1e-12. A class that is never predicted has the
    mean of all samples (NaN in the authors' code).
    """

    name = "caref"
    summary = "relative distance to the mean feature of the predicted class"
    fits_on = "train"

    def _learn(self, head: Head) -> Course:
        (means, counts), overall = yield Together((ClassSums(by="predicted"), MeanFeatures()))
        self.means_ = torch.where(counts[:, None] > 0, means, overall)

    def _score(self, outputs: Outputs) -> Tensor:
        return self._off(outputs).abs().sum(1) / _size(outputs)

    def _off(self, outputs: Outputs) -> Tensor:
        return outputs.features.double() - self.means_[outputs.logits.argmax(1)]


@dataclass
class CADRef(CARef):
    """Ling et al., "CADRef: robust out-of-distribution detection via class-aware decoupled relative feature
    leveraging", CVPR 2025.

    `CARef`'s error, split by the sign of the predicted class's weights: ``d = (a - m_c) sign(w_c)``,
    ``S = (sum of max(d, 0) / L(z) + sum of max(-d, 0) / mean L) / ||a||_1``, where ``L`` is the energy ``E(z)`` (or the
    largest logit, the largest probability, or 1 over GEN's entropy), and ``mean L`` that of the training samples. ``L``
    counts as at least 1e-12: a negative one would turn the score around.
    """

    name = "cadref"
    summary = "relative feature error of the predicted class, split by its weights"
    search_space: ClassVar[Space] = {"logit_score": ("energy", "mls", "msp", "gen")}

    logit_score: LogitScore = "energy"

    def _learn(self, head: Head) -> Course:
        yield from super()._learn(head)
        confidences: Tensor = yield Each(_Confidence(self.logit_score))
        self.typical_ = confidences.mean().clamp_min(_LEAST)

    def _score(self, outputs: Outputs) -> Tensor:
        along = self._off(outputs) * self.head_.matrix[outputs.logits.argmax(1)].sign()
        own = _CONFIDENCES[self.logit_score](outputs.logits).clamp_min(_LEAST)
        up, down = along.clamp_min(0).sum(1), (-along).clamp_min(0).sum(1)
        return (up / own + down / self.typical_) / _size(outputs)


def _size(outputs: Outputs) -> Tensor:
    return outputs.features.double().abs().sum(1).clamp_min(_LEAST)


@dataclass(frozen=True)
class _Confidence:
    logit_score: LogitScore

    def __call__(self, outputs: Outputs) -> Tensor:
        return _CONFIDENCES[self.logit_score](outputs.logits)
