"""KNN: distance to the K-th nearest training sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from adascale.detectors.base import Detector, FitsOn
from adascale.detectors.classes import bank_blocks
from adascale.errors import InputError
from adascale.stats import unit_rows
from adascale.types import Head, Outputs


@dataclass
class KNN(Detector):
    """Sun et al., "Out-of-distribution detection with deep nearest neighbors", ICML 2022.

    ``S = ||u - u_(K)||``: distance of the unit vector ``u = a / ||a||`` to its ``k``-th nearest among the training
    samples'. (The reference returns its square, the same order.) The bank is the training features themselves, searched
    in blocks. An all-zero row has ``u = 0``.
    """

    name: ClassVar[str] = "knn"
    summary: ClassVar[str] = "distance to the K-th nearest training sample"
    fits_on: ClassVar[FitsOn] = "train"
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"k": (50, 100, 200, 500, 1000)}

    k: int = 50

    def _check_parameters(self) -> None:
        if self.k < 1:
            raise InputError(f"k={self.k}; it counts neighbours, at least 1.")

    def _fit(self, reference: Outputs, head: Head) -> None:
        if len(reference) < self.k:
            raise InputError(f"KNN with k={self.k} got {len(reference)} training samples; give as many, or lower k.")
        self.bank_ = reference.features

    def _score(self, outputs: Outputs) -> Tensor:
        unit = unit_rows(outputs.features)
        nearest = torch.empty(len(unit), 0, dtype=torch.float64)
        for block in bank_blocks(self.bank_):
            bank = unit_rows(block)
            similar = unit @ bank.T
            found = similar.topk(min(self.k, len(bank)), dim=1)
            nearest = torch.cat([nearest, found.values], 1)
            nearest = nearest.topk(min(self.k, nearest.shape[1]), dim=1).values
        lengths = unit.square().sum(1)
        return (lengths + 1 - 2 * nearest[:, -1]).clamp_min(0).sqrt()
