"""LINe: only the features and weights that matter for the predicted class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.classes import ClassSums, refuse_missing
from adascale.detectors.parameters import number, percent
from adascale.detectors.shaping import Shaping
from adascale.detectors.statistics import Course
from adascale.detectors.traits import Space
from adascale.maths.quantiles import matrix_quantile

_MOST_TRACED = 2**20  # classes times features: 8 MB for each image


@dataclass
class LINe(Shaping):
    """Ahn et al., "LINe: out-of-distribution detection by leveraging important neurons", CVPR 2023.

    Contributions ``S_c = mean_c(a) * W_c`` (mean over the training samples of class ``c``, true labels). Activations
    are clipped at ``clip`` (the paper's delta); ``c`` = argmax of the head on them. Features whose ``S_c`` is at or
    below its ``p_a`` percentile become 0; weights whose entry in ``|S_c| * W`` is at or below that matrix's ``p_w``
    percentile become 0; ``S = -E(W~ a~ + b)``. So every predicted class has a weight matrix of its own: they are built
    when needed, one at a time, never all. Defaults: ImageNet; CIFAR-10: 90, 90, 1.0; CIFAR-100: 90, 10, 1.0.
    """

    name = "line"
    summary = "only features and weights important for the predicted class"
    signed_features = "as is"
    cost = "heavy"
    fits_on = "train+labels"
    search_space: ClassVar[Space] = {"p_w": (10, 90), "p_a": (10, 90), "clip": (0.8, 1.0)}

    p_w: float = percent(10)
    p_a: float = percent(10)
    clip: float = number(0.8, above=0)

    def _learn(self, head: Head) -> Course:
        means: Tensor
        means, counts = yield ClassSums()
        refuse_missing(counts, self.name)
        weight = head.matrix
        contribution = means * weight
        self.feature_mask_ = contribution > torch.quantile(contribution, self.p_a / 100, dim=1, keepdim=True)
        self.strength_ = contribution.abs()
        cuts = [matrix_quantile(row * weight, self.p_w / 100) for row in self.strength_]
        self.weight_cut_ = torch.tensor(cuts, dtype=torch.float64)

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        clipped, weight = outputs.features.double().clamp_max(self.clip), self.head_.matrix
        predicted = self.head_(clipped).argmax(1)
        logits = torch.empty(len(clipped), len(weight), dtype=torch.float64)
        for c in torch.unique(predicted).tolist():
            rows = predicted == c
            sparse = weight * (self.strength_[c] * weight > self.weight_cut_[c])
            logits[rows] = (clipped[rows] * self.feature_mask_[c]) @ sparse.T
        return logits + self.head_.offset

    def formula_logits(self, outputs: Outputs) -> Tensor:
        clipped, weight = outputs.features.double().clamp_max(self.clip), self.head_.matrix
        predicted = self.head_(clipped).argmax(1)
        masked = clipped * self.feature_mask_[predicted]
        kept = self.strength_[predicted][:, None, :] * weight > self.weight_cut_[predicted][:, None, None]
        return (torch.where(kept, weight, 0.0) * masked[:, None, :]).sum(2) + self.head_.offset

    @property
    def untraceable(self) -> str:
        if (values := self.head_.weight.numel()) > _MOST_TRACED:
            return f"it needs a weight matrix of {values:,} values for each image; react or dice, which need none, can"
        return ""
