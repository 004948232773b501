"""I-ODIN: ODIN at the one input value that matters most."""

from __future__ import annotations

from dataclasses import dataclass

from adascale.core.types import View
from adascale.detectors.odin import ODIN


@dataclass
class IODIN(ODIN):
    """Regmi, "Going beyond conventional OOD detection", 2024 (i-ODIN; also among OpenOOD's post-processors).

    `ODIN`, whose step is taken only at the input value with the largest ``|g|``, ``g = d CE(z / T, y_pred) / d x``; of
    equal values, the one with the lowest index. No images are needed to fit it.
    """

    name = "iodin"
    summary = "ODIN perturbing the one most sensitive input value"

    @property
    def view(self) -> View:
        return View("largest", step=-self.eta, temperature=self.temperature, std=self.std)
