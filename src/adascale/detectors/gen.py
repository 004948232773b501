"""GEN: generalised entropy of the largest probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.base import Detector
from adascale.detectors.parameters import number
from adascale.detectors.traits import Space
from adascale.maths.activations import generalised_entropy


@dataclass
class GEN(Detector):
    """Liu et al., "GEN: pushing the limits of softmax-based out-of-distribution detection", CVPR 2023.

    ``S = sum over the M most probable classes of p^gamma (1 - p)^gamma``; ``top`` is the paper's ``M``.
    No images are needed to fit it.
    """

    name = "gen"
    summary = "generalised entropy of the softmax"
    reads_features = False
    search_space: ClassVar[Space] = {"gamma": (0.01, 0.1, 0.5, 1, 2, 5, 10), "top": (10, 50, 100, 200, 500, 1000)}

    gamma: float = number(0.1, above=0)
    top: int = number(100, least=1)

    def _score(self, outputs: Outputs) -> Tensor:
        return generalised_entropy(outputs.logits, self.gamma, self.top)
