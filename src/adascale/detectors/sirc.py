"""SIRC: confidence, corrected by a second score where that one says OOD."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.parameters import number
from adascale.detectors.statistics import Course, Each
from adascale.detectors.traits import Space
from adascale.detectors.vim import Residual
from adascale.maths.activations import entropy, log_others

_SMALLEST = 1e-300


@dataclass
class SIRC(Detector):
    """Xia & Bouganis, "Augmenting softmax information for selective classification with out-of-distribution data",
    ACCV 2022.

    ``s1`` = the largest probability (``first="msp"``, ``m = 1``) or minus the entropy (``first="entropy"``, ``m = 0``);
    ``s2`` = ``||a||_1`` (``second="norm"``) or minus ViM's residual (``second="residual"``, with its ``dim``);
    ``A`` = mean - 3 deviations of ``s2`` over the training samples, ``B`` = 1 / deviation;
    ``S = log(m - s1) + log(1 + exp(-B (s2 - A)))``.
    """

    name = "sirc"
    summary = "confidence corrected by the size of the features"
    cost = "product"
    fits_on = "train"
    search_space: ClassVar[Space] = {"first": ("msp", "entropy"), "second": ("norm", "residual")}

    first: Literal["msp", "entropy"] = "msp"
    second: Literal["norm", "residual"] = "norm"
    dim: int | None = number(None, least=1)

    def _learn(self, head: Head) -> Course:
        if self.second == "residual":
            inner = Residual(dim=self.dim)
            yield from inner._learn(head)
            self.origin_, self.principal_ = inner.origin_, inner.principal_
        values: Tensor = yield Each(self._copied(head)._second)
        deviation = values.std(correction=0)
        if not deviation > 0:
            raise InputError(f"{self.name} needs training samples that differ in its second score; theirs is the same.")
        self.rate_, self.start_ = 1 / deviation, values.mean() - 3 * deviation

    def _copied(self, head: Head) -> SIRC:
        """What knows the second score, and nothing else."""
        known = {name: value for name, value in self._fitted().items() if name in ("origin_", "principal_")}
        return replace(self).restore(known, head)

    def _score(self, outputs: Outputs) -> Tensor:
        return self._first(outputs) + softplus(-self.rate_ * (self._second(outputs) - self.start_))

    def formula(self, outputs: Outputs) -> Tensor:
        excess = -self.rate_ * (self._second(outputs, traced=True) - self.start_)
        # log(1 + e^x) as exporters can write it
        return self._first(outputs) + excess.clamp_min(0) + torch.log1p((-excess.abs()).exp())

    def _first(self, outputs: Outputs) -> Tensor:
        """``log(m - s1)``."""
        if self.first == "msp":
            return log_others(outputs.logits).clamp_min(math.log(_SMALLEST))  # one class has no others
        return entropy(outputs.logits).clamp_min(_SMALLEST).log()

    def _second(self, outputs: Outputs, traced: bool = False) -> Tensor:
        """``s2``."""
        if self.second == "norm":
            return outputs.features.double().abs().sum(1)
        inner = Residual(dim=self.dim).restore({"origin_": self.origin_, "principal_": self.principal_}, self.head_)
        return -(inner.formula(outputs) if traced else inner._score(outputs))
