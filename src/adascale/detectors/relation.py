"""Relation: edges of a graph between the sample and the training set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector, Space
from adascale.detectors.classes import bank_blocks
from adascale.detectors.parameters import number
from adascale.maths.activations import unit_rows


@dataclass
class Relation(Detector):
    """Kim et al., "Neural relation graph: a unified framework for identifying label noise and outlier data",
    NeurIPS 2023.

    Kernel ``k = max(0, cos(a, a_i)) * (p . p_i)``, ``p = softmax(z)``;
    ``S = -sum over the training samples i with k > threshold of k^power``. The training samples are searched
    in blocks; they are shared with the caller, not copied.
    """

    name = "relation"
    summary = "summed similarity to the training samples, features times softmax"
    cost = "bank"
    fits_on = "train"
    search_space: ClassVar[Space] = {"power": (1, 2, 4, 6, 8)}

    power: float = number(1, above=0)
    threshold: float = 0.03

    def _fit(self, reference: Outputs, head: Head) -> None:
        self.bank_, self.bank_logits_ = reference.features, reference.logits

    def _score(self, outputs: Outputs) -> Tensor:
        unit, p = unit_rows(outputs.features), outputs.logits.double().softmax(1)
        total = torch.zeros(len(unit), dtype=torch.float64)
        for features, logits in zip(bank_blocks(self.bank_), bank_blocks(self.bank_logits_), strict=True):
            total += self._edges(unit, p, features, logits)
        return -total

    def formula(self, outputs: Outputs) -> Tensor:
        unit, p = unit_rows(outputs.features), outputs.logits.double().softmax(1)
        return -self._edges(unit, p, self.bank_, self.bank_logits_)

    def _edges(self, unit: Tensor, p: Tensor, features: Tensor, logits: Tensor) -> Tensor:
        """The sum of each sample's edges to these training samples."""
        kernel = (unit @ unit_rows(features).T).clamp_min(0) * (p @ logits.double().softmax(1).T)
        return torch.where(kernel > self.threshold, kernel**self.power, 0.0).sum(1)
