"""NNGuide: the energy guided by the nearest training samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector, FitsOn, check_count
from adascale.detectors.classes import bank_blocks
from adascale.maths.stats import energy, share_count, unit_rows


@dataclass
class NNGuide(Detector):
    """Park et al., "Nearest neighbor guidance for out-of-distribution detection", ICCV 2023.

    Bank rows ``(a / ||a||) E(z)`` of a share of the training samples; guidance = mean of the ``k`` largest inner
    products of ``a / ||a||`` with them; ``S = -E(z) * guidance``. The bank is a draw with ``seed`` of ``fraction`` of
    the samples, but never fewer than ``k`` (the reference's bank depends on the loader's batch size).
    """

    name: ClassVar[str] = "nnguide"
    summary: ClassVar[str] = "energy times similarity to the nearest training samples"
    cost: ClassVar[Literal["light", "product", "bank", "heavy"]] = "bank"
    fits_on: ClassVar[FitsOn] = "train"
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"k": (10, 50, 100), "fraction": (0.01, 0.1)}

    k: int = 100
    fraction: float = 0.01
    seed: int = 0

    def _check_parameters(self) -> None:
        check_count("k", self.k)
        if not 0 < self.fraction <= 1:
            raise InputError(f"fraction={self.fraction}; it is a share of the training samples, above 0 and at most 1.")

    def _fit(self, reference: Outputs, head: Head) -> None:
        if len(reference) < self.k:
            raise InputError(
                f"NNGuide with k={self.k} got {len(reference)} training samples; give as many, or lower k."
            )
        size = max(self.k, share_count(len(reference), self.fraction))
        order = torch.randperm(len(reference), generator=torch.Generator().manual_seed(self.seed))[:size]
        bank = reference[order]
        self.bank_ = unit_rows(bank.features) * energy(bank.logits)[:, None]

    def _score(self, outputs: Outputs) -> Tensor:
        unit = unit_rows(outputs.features)
        best = torch.empty(len(unit), 0, dtype=torch.float64)
        for block in bank_blocks(self.bank_):
            best = torch.cat([best, unit @ block.T], 1)
            best = best.topk(min(self.k, best.shape[1]), dim=1).values
        return -energy(outputs.logits) * best.mean(1)
