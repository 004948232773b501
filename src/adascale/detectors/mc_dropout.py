"""MC dropout: how much the predictions of thinned networks differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from adascale.core.types import Outputs, View
from adascale.detectors.base import Detector
from adascale.detectors.parameters import number
from adascale.detectors.traits import Space


@dataclass
class MCDropout(Detector):
    """Gal & Ghahramani, "Dropout as a Bayesian approximation: representing model uncertainty in deep learning", ICML
    2016 (pytorch-ood's MCD, OpenOOD's dropout).

    ``p_s = softmax(z_s)``, ``s = 1 ... samples``, of passes with dropout switched on. ``S = mean_c var_s p_sc``, the
    variance divided by samples - 1 (``mode="var"``, pytorch-ood's default), or ``S = -max_c mean_s p_sc`` (``mean``),
    or ``S = -max_c softmax(mean_s z_s)_c`` (``logits``, OpenOOD's).

    The masks are drawn with ``seed``, once for all images, so that a score depends on the image alone; the other codes
    draw them for each image and call. Only a network with dropout modules can be used. No images are needed to fit it.
    """

    name = "mc_dropout"
    summary = "variance of the probabilities with dropout switched on"
    cost = "product"
    reads_features = False
    passes = "11 forward"
    nearest = "entropy"
    search_space: ClassVar[Space] = {"mode": ("var", "mean", "logits")}

    samples: int = number(10, least=2, most=1000)
    mode: Literal["var", "mean", "logits"] = "var"
    seed: int = number(0, least=0)

    @property
    def views(self) -> tuple[View, ...]:
        first = self.seed * 1000
        return tuple(View(network="dropout", seed=first + s) for s in range(self.samples))

    def _score(self, outputs: Outputs) -> Tensor:
        logits = torch.stack([self.head_(outputs.views[view]) for view in self.views])
        if self.mode == "logits":
            return -logits.mean(0).softmax(1).amax(1)
        probabilities = logits.softmax(2)
        if self.mode == "mean":
            return -probabilities.mean(0).amax(1)
        return probabilities.var(0).mean(1)
