"""Energy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.base import Detector, check_number
from adascale.maths.stats import energy


@dataclass
class EBO(Detector):
    """Liu et al., "Energy-based out-of-distribution detection", NeurIPS 2020.

    ``S = -T E(z / T)`` with ``E(z) = log sum_c exp(z_c)`` and temperature ``T``. Fitted on nothing.
    """

    name: ClassVar[str] = "ebo"
    summary: ClassVar[str] = "energy of the logits"
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"temperature": (1.0,)}

    temperature: float = 1.0

    def _check_parameters(self) -> None:
        check_number("temperature", self.temperature, above=0)

    def _score(self, outputs: Outputs) -> Tensor:
        return -self.temperature * energy(outputs.logits.double() / self.temperature)
