"""OptFS: a piecewise constant weight on the activations, optimal for separation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.classes import feature_quantiles
from adascale.detectors.parameters import number
from adascale.detectors.rows import in_chunks
from adascale.detectors.shaping import Shaping
from adascale.detectors.statistics import Course, State, Sums

_LOW, _HIGH, _NORM = 0.001, 0.999, 1000.0


@dataclass
class OptFS(Shaping):
    """Zhao et al., "Towards optimal feature-shaping methods for out-of-distribution detection", ICLR 2024.

    The range ``[q0.001, q0.999]`` of all training features is cut into ``bins`` equal ones. With ``yhat`` the predicted
    class, ``I_k`` = mean over samples of the sum over ``j`` with ``a_j`` in bin ``k`` of ``W[yhat, j] a_j``;
    ``theta = 1000 I / ||I||``; ``a~_j = theta[bin(a_j)] a_j``, 0 outside the range. ``S = -W[yhat] . a~``
    (``form="plain"``), or any logit score of ``W a~ + b`` (``form="logits"``). No labels needed. The reference code's
    bins can number 101 when its steps round badly; ours are always ``bins``.
    """

    name = "optfs"
    summary = "activations reweighted by an optimal function of their size"
    signed_features = "as is"
    fits_on = "train"

    form: Literal["plain", "logits"] = "plain"
    bins: int = number(100, least=1)

    def _learn(self, head: Head) -> Course:
        low, high = yield from feature_quantiles([_LOW, _HIGH])
        if not low < high:
            raise InputError(f"The features lie between {low:g} and {high:g}; OptFS needs them to vary.")
        self.low_, self.high_ = (torch.tensor(end, dtype=torch.float64) for end in (low, high))
        importance = yield _Importance(head.matrix, self.bins, self.low_, self.high_)
        self.theta_ = torch.cat([_NORM * importance / importance.norm().clamp_min(1e-300), torch.zeros(1)])

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        return self.head_(self._shaped(outputs.features.double()))

    def _score(self, outputs: Outputs) -> Tensor:
        if self.form == "logits":
            return super()._score(outputs)
        weight = self.head_.matrix[outputs.logits.argmax(1)]
        return -(weight * self._shaped(outputs.features.double())).sum(1)

    def formula(self, outputs: Outputs) -> Tensor:
        return self._score(outputs)

    def _shaped(self, features: Tensor) -> Tensor:
        return self.theta_[self._bin(features)] * features

    def _bin(self, features: Tensor) -> Tensor:
        return _bin(features, self.bins, self.low_, self.high_)


@dataclass(frozen=True)
class _Importance(Sums):
    """``I`` (bins)."""

    weight: Tensor
    bins: int
    low: Tensor
    high: Tensor

    def of(self, outputs: Outputs, start: int) -> State:
        total = torch.zeros(self.bins + 1, dtype=torch.float64)
        for chunk in in_chunks(outputs):
            features = chunk.features.double()
            parts = self.weight[chunk.logits.argmax(1)] * features
            total.index_add_(0, _bin(features, self.bins, self.low, self.high).flatten(), parts.flatten())
        return {"total": total, "rows": torch.tensor(len(outputs))}

    def value(self, state: State) -> Tensor:
        return state["total"][:-1] / int(state["rows"])


def _bin(features: Tensor, bins: int, low: Tensor, high: Tensor) -> Tensor:
    """The bin of each value; ``bins`` means outside the range."""
    index = ((features - low) / ((high - low) / bins)).floor().long().clamp(0, bins - 1)
    return torch.where((features < low) | (features > high), bins, index)
