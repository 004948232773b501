"""Maximum logit score."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.base import Detector
from adascale.detectors.shaping import LOGIT_SCORES


@dataclass
class MLS(Detector):
    """Hendrycks et al., "Scaling out-of-distribution detection for real-world settings", ICML 2022.

    ``S = -max_c z_c``. No images are needed to fit it.
    """

    name = "mls"
    summary = "largest logit"
    reads_features = False
    in_pieces = True

    def _score(self, outputs: Outputs) -> Tensor:
        return LOGIT_SCORES["mls"](outputs.logits)
