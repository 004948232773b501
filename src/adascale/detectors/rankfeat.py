"""RankFeat: energy after the strongest component of late feature maps is taken off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Outputs, View
from adascale.detectors.base import Detector
from adascale.detectors.parameters import number
from adascale.detectors.traits import Space
from adascale.maths.activations import energy


@dataclass
class RankFeat(Detector):
    """Song et al., "RankFeat: rank-1 feature removal for out-of-distribution detection", NeurIPS 2022.

    The maps ``X`` (C, H W) of a stage become ``X - s_1 u_1 v_1^T``, without their first singular component; the rest of
    the network gives the logits. With several stages, ``z`` = the mean of their logits. ``S = -T E(z / T)``.

    stages: counted from the end of the network (see `Tap`); the authors take the last two. No images are needed to fit
    it. The singular component is exact (the authors also offer a power iteration).
    """

    name = "rankfeat"
    summary = "energy without the first singular component of late maps"
    cost = "product"
    reads_features = False
    passes = "3 forward"
    nearest = "ebo"
    search_space: ClassVar[Space] = {"stages": ((-1,), (-2,), (-1, -2))}

    stages: tuple[int, ...] = (-1, -2)
    temperature: float = number(1, above=0)

    def _check_parameters(self) -> None:
        if not self.stages or max(self.stages) >= 0 or len(set(self.stages)) < len(self.stages):
            raise InputError(f"stages={self.stages}; give distinct stages counted from the end: -1, -2, ...")

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(View(network="rank_one", stage=stage) for stage in self.stages)

    def _score(self, outputs: Outputs) -> Tensor:
        logits = torch.stack([self.head_(outputs.views[view]) for view in self.views]).mean(0)
        return -self.temperature * energy(logits / self.temperature)
