"""Relation: edges of a graph between the sample and the training set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import bank_blocks
from adascale.detectors.parameters import number
from adascale.detectors.statistics import Course, Rows
from adascale.detectors.traits import Space
from adascale.maths.activations import unit_rows
from adascale.maths.shortlist import pair_products, product_error

_FEW = 16  # pairs for each training sample of a block; with more, products in float64 take less time
_VANISHED = 1e-30  # more than what probabilities too small for float32 could add


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

    def _learn(self, head: Head) -> Course:
        bank: Outputs = yield Rows()
        self.bank_, self.bank_logits_ = bank.features, bank.logits

    def _score(self, outputs: Outputs) -> Tensor:
        unit, p = unit_rows(outputs.features), outputs.logits.double().softmax(1)
        total = torch.zeros(len(unit), dtype=torch.float64)
        for features, logits in zip(bank_blocks(self.bank_), bank_blocks(self.bank_logits_), strict=True):
            bank_p = logits.double().softmax(1)
            rows, near = self._candidates(p, bank_p)
            if len(rows) > _FEW * len(features):
                kernel = (unit @ unit_rows(features).T).clamp_min(0) * (p @ bank_p.T)
                total += self._edges(kernel).sum(1)
            elif len(rows):
                alike = pair_products(unit, unit_rows(features), rows, near)
                kernel = alike.clamp_min(0) * pair_products(p, bank_p, rows, near)
                total.index_add_(0, rows, self._edges(kernel))
        return -total

    def _candidates(self, p: Tensor, bank_p: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs with ``p . p_i`` above the threshold, as far as float32 can tell: a cosine is at most 1, so no
        other pair has an edge.
        """
        rough = p.float() @ bank_p.T.float()
        least = self.threshold * (1 - 3 * product_error(p.shape[1])) - _VANISHED
        rows, near = (rough >= least).nonzero(as_tuple=True)
        return rows, near

    def _edges(self, kernel: Tensor) -> Tensor:
        return torch.where(kernel > self.threshold, kernel**self.power, 0.0)

    def formula(self, outputs: Outputs) -> Tensor:
        unit, p = unit_rows(outputs.features), outputs.logits.double().softmax(1)
        alike = (unit @ unit_rows(self.bank_).T).clamp_min(0)
        return -self._edges(alike * (p @ self.bank_logits_.double().softmax(1).T)).sum(1)
