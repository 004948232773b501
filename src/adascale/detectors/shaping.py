"""Methods that reshape activations, weights or logits, and then read any score off the new logits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from adascale.core.shards import Shards
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.learning import BLOCK_ROWS
from adascale.detectors.traits import Cost
from adascale.maths.activations import energy, generalised_entropy, largest_probability

if TYPE_CHECKING:
    from typing_extensions import Self

LogitScore = Literal["energy", "mls", "msp", "gen"]
# Scores of logits alone, higher = more OOD.
LOGIT_SCORES: Mapping[LogitScore, Callable[[Tensor], Tensor]] = {
    "energy": lambda logits: -energy(logits),
    "mls": lambda logits: -logits.amax(1).double(),
    "msp": lambda logits: -largest_probability(logits),
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

    def formula_logits(self, outputs: Outputs) -> Tensor:
        """`shaped_logits` as torch operations alone: see `Detector.formula`."""
        return self.shaped_logits(outputs)

    def _score(self, outputs: Outputs) -> Tensor:
        return LOGIT_SCORES[self.logit_score](self.shaped_logits(outputs))

    def formula(self, outputs: Outputs) -> Tensor:
        return LOGIT_SCORES[self.logit_score](self.formula_logits(outputs))


@dataclass
class Rectified(Shaping):
    """A method that was made for features after a ReLU, where sums of signed features would cancel.

    ``relu=True`` takes ``max(a, 0)``, ``relu=False`` the features as they are, which is the definition. ``None`` takes
    ``max(a, 0)`` if the samples given to `fit` have a negative feature, and `note` says so.
    """

    relu: bool | None = field(default=None, kw_only=True)

    def fit(self, reference: Outputs | Shards | None, head: Head, train: Outputs | Shards | None = None) -> Self:
        super().fit(reference, head)
        signed = self.relu is None and reference is not None and _has_negative(reference)
        self.rectified_ = torch.tensor(bool(self.relu) or signed)
        self._rectifies = bool(self.relu) or signed
        return self

    def restore(self, state: Mapping[str, Tensor], head: Head) -> Self:
        super().restore({"rectified_": torch.tensor(bool(self.relu)), **state}, head)  # earlier files lack it
        self._rectifies = bool(self.rectified_)
        return self

    @property
    def rectifies(self) -> bool:
        """Whether the fitted method takes ``max(a, 0)``: no tensor, because a trace cannot look into one."""
        return self._rectifies

    @property
    def note(self) -> str:
        if self.relu is None and self.is_fitted and self.rectifies:
            return f"this network has negative features, which {self.name} counts as 0 (relu=False: as they are)"
        return ""


def _has_negative(reference: Outputs | Shards) -> bool:
    parts = [reference] if isinstance(reference, Outputs) else reference.chunks(BLOCK_ROWS)
    return any(bool((part.features < 0).any()) for part in parts)
