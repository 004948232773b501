"""KNN: distance to the K-th nearest training sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector, Space
from adascale.detectors.classes import bank_blocks
from adascale.detectors.parameters import number
from adascale.maths.activations import row_norms, unit_rows


@dataclass
class KNN(Detector):
    """Sun et al., "Out-of-distribution detection with deep nearest neighbors", ICML 2022.

    ``S = ||u - u_(K)||``: distance of the unit vector ``u = a / ||a||`` to its ``k``-th nearest among the training
    samples'. (The reference returns its square, the same order.) The bank is the training features themselves (shared
    with the caller, not copied), searched in blocks. An all-zero row has ``u = 0``.
    """

    name = "knn"
    summary = "distance to the K-th nearest training sample"
    cost = "bank"
    fits_on = "train"
    search_space: ClassVar[Space] = {"k": (50, 100, 200, 500, 1000)}

    k: int = number(50, least=1)

    def _fit(self, reference: Outputs, head: Head) -> None:
        if len(reference) < self.k:
            raise InputError(f"KNN with k={self.k} got {len(reference)} training samples; give as many, or lower k.")
        self.bank_ = reference.features

    def _score(self, outputs: Outputs) -> Tensor:
        unit = unit_rows(outputs.features)
        nearest = torch.empty(len(unit), 0, dtype=torch.float64)
        index = torch.empty(len(unit), 0, dtype=torch.int64)
        start = 0
        for block in bank_blocks(self.bank_):
            bank = unit_rows(block)
            # ||u - v||^2 but for ||u||^2, which is the same for all v
            distance = bank.square().sum(1) - 2 * unit @ bank.T
            found = distance.topk(min(self.k, len(bank)), dim=1, largest=False)
            nearest, index = torch.cat([nearest, found.values], 1), torch.cat([index, found.indices + start], 1)
            best = nearest.topk(min(self.k, nearest.shape[1]), dim=1, largest=False)
            nearest, index = best.values, index.gather(1, best.indices)
            start += len(block)
        # Once more from the vectors themselves: the difference of squares above loses small distances.
        return row_norms(unit - unit_rows(self.bank_[index[:, -1]]))

    def formula(self, outputs: Outputs) -> Tensor:
        unit, bank = unit_rows(outputs.features), unit_rows(self.bank_)
        nearest = (bank.square().sum(1) - 2 * unit @ bank.T).topk(self.k, dim=1, largest=False).indices[:, -1]
        return row_norms(unit - bank[nearest])
