"""NNGuide: the energy guided by the nearest training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import bank_blocks
from adascale.detectors.parameters import number
from adascale.detectors.statistics import Count, Course, Drawn
from adascale.detectors.traits import Space
from adascale.maths.activations import energy, row_norms, share_count, unit_rows


@dataclass
class NNGuide(Detector):
    """Park et al., "Nearest neighbor guidance for out-of-distribution detection", ICCV 2023.

    Bank rows ``(a / ||a||) E(z)`` of a share of the training samples; guidance = mean of the ``k`` largest inner
    products of ``a / ||a||`` with them; ``S = -E(z) * guidance``. The bank is a draw with ``seed`` of ``fraction`` of
    the samples, but never fewer than ``k`` (the reference's bank depends on the loader's batch size).
    """

    name = "nnguide"
    summary = "energy times similarity to the nearest training samples"
    cost = "bank"
    fits_on = "train"
    search_space: ClassVar[Space] = {"k": (10, 50, 100), "fraction": (0.01, 0.1)}

    k: int = number(100, least=1)
    fraction: float = number(0.01, above=0, most=1, kind="a share")
    seed: int = 0

    def _learn(self, head: Head) -> Course:
        total: int = yield Count()
        if total < self.k:
            raise InputError(f"NNGuide with k={self.k} got {total} training samples; give as many, or lower k.")
        drawn, order = Drawn.by(self.seed, max(self.k, share_count(total, self.fraction)), total)
        bank = yield drawn
        self.bank_ = unit_rows(bank["features"][order]) * energy(bank["logits"][order])[:, None]

    def _score(self, outputs: Outputs) -> Tensor:
        features = outputs.features.double()
        length = row_norms(features).clamp_min(1e-300)  # divides the products: that takes less time than all features
        return -energy(outputs.logits) * (self._nearest(features) / length)

    def _nearest(self, features: Tensor) -> Tensor:
        """The mean of the ``k`` largest inner products with the bank."""
        if len(self.bank_) == self.k:
            return features @ self.bank_.mean(0)
        best = torch.empty(len(features), 0, dtype=torch.float64)
        for block in bank_blocks(self.bank_):
            best = torch.cat([best, features @ block.T], 1)
            if best.shape[1] > self.k:
                best = best.topk(self.k, dim=1).values
        return best.mean(1)

    def formula(self, outputs: Outputs) -> Tensor:
        best = (unit_rows(outputs.features) @ self.bank_.T).topk(self.k, dim=1).values
        return -energy(outputs.logits) * best.mean(1)
