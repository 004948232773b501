"""Maximum softmax probability."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.base import Detector
from adascale.maths.activations import largest_probability


@dataclass
class MSP(Detector):
    """Hendrycks & Gimpel, "A baseline for detecting misclassified and out-of-distribution examples", ICLR 2017.

    ``S = -max_c softmax(z)_c``. No images are needed to fit it.
    """

    name = "msp"
    summary = "largest softmax probability"
    reads_features = False
    in_pieces = True
    shows_infinite = ("logits",)

    def _score(self, outputs: Outputs) -> Tensor:
        return -largest_probability(outputs.logits, marked=True)
