"""pNML: how much a single sample could teach the last layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import Covariance, precision_root
from adascale.detectors.statistics import Count, Course, Together
from adascale.maths.activations import unit_rows


@dataclass
class PNML(Detector):
    """Bibas et al., "Single layer predictive normalized maximum likelihood for out-of-distribution detection", NeurIPS
    2021.

    With ``u = a / ||a||``, ``U`` the training samples' (N, D), ``x = u^T (U^T U)^+ u``, ``k = x / (1 + x)`` and
    ``p = softmax(W u + b)``, the regret ``S = log(sum_c p_c / (p_c + (1 - p_c) p_c^k)) / log C``. As in the authors'
    code, the probabilities are those of the unit feature. An all-zero row has ``u = 0``.
    """

    name = "pnml"
    summary = "regret of the last layer about a single sample"
    cost = "product"
    fits_on = "train"

    def _learn(self, head: Head) -> Course:
        origin = torch.zeros(head.weight.shape[1], dtype=torch.float64)
        found, total = yield Together((Covariance(origin, unit_rows), Count()))
        self.root_ = precision_root(found, self.name) / math.sqrt(total)

    def _score(self, outputs: Outputs) -> Tensor:
        unit = unit_rows(outputs.features)
        x = (unit @ self.root_).square().sum(1, keepdim=True)
        log_p = self.head_(unit).log_softmax(1)
        p = log_p.exp()
        # p / (p + (1 - p) p^k), divided by p: a probability too small for float64 still counts as 0
        genie = 1 / (1 + (1 - p) * (-log_p / (1 + x)).exp())
        return genie.sum(1).log() / math.log(max(2, p.shape[1]))
