"""Methods that reshape activations, weights or logits, and then read any score off the new logits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.base import Cost, Detector
from adascale.maths.activations import energy, generalised_entropy

LogitScore = Literal["energy", "mls", "msp", "gen"]
# Scores of logits alone, higher = more OOD.
LOGIT_SCORES: Mapping[LogitScore, Callable[[Tensor], Tensor]] = {
    "energy": lambda logits: -energy(logits),
    "mls": lambda logits: -logits.double().amax(1),
    "msp": lambda logits: -torch.softmax(logits.double(), dim=1).amax(1),
    "gen": generalised_entropy,
}


@dataclass
class Shaping(Detector):
    """A method that changes the logits. ``logit_score`` is what is read off them: ``energy`` (all the papers),
    ``mls``, ``msp`` or ``gen``; so ReAct + GEN is ``ReAct(logit_score="gen")``.
    """

    cost: ClassVar[Cost] = "product"

    logit_score: LogitScore = field(default="energy", kw_only=True)

    @abstractmethod
    def shaped_logits(self, outputs: Outputs) -> Tensor:
        """The new logits (N, C), float64."""

    def _score(self, outputs: Outputs) -> Tensor:
        return LOGIT_SCORES[self.logit_score](self.shaped_logits(outputs))
