"""Entropy of the softmax."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.base import Detector
from adascale.maths.activations import entropy


@dataclass
class Entropy(Detector):
    """Chan et al., "Entropy maximization and meta classification for out-of-distribution detection in semantic
    segmentation", ICCV 2021, without its training: ``S = -sum_c p_c log p_c``, ``p = softmax(z)``.

    No images are needed to fit it.
    """

    name = "entropy"
    summary = "entropy of the softmax"
    reads_features = False

    def _score(self, outputs: Outputs) -> Tensor:
        return entropy(outputs.logits)
