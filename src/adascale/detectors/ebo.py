"""Energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.base import Detector
from adascale.detectors.parameters import number
from adascale.detectors.traits import Space
from adascale.maths.activations import energy


@dataclass
class EBO(Detector):
    """Liu et al., "Energy-based out-of-distribution detection", NeurIPS 2020.

    ``S = -T E(z / T)`` with ``E(z) = log sum_c exp(z_c)`` and temperature ``T``. No images are needed to fit it.
    """

    name = "ebo"
    summary = "energy of the logits"
    reads_features = False
    in_pieces = True
    shows_infinite = ("logits",)
    search_space: ClassVar[Space] = {"temperature": (1.0,)}

    temperature: float = number(1.0, above=0)

    def _score(self, outputs: Outputs) -> Tensor:
        if self.temperature == 1:
            return -energy(outputs.logits, marked=True)
        return -self.temperature * energy(outputs.logits.double() / self.temperature, marked=True)
