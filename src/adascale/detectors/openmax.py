"""OpenMax: the probability of an unknown class, from the tails of the distances to the class means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector, Space
from adascale.detectors.parameters import number
from adascale.maths.activations import energy, row_norms
from adascale.maths.weibull import SHIFT, fit_weibull


@dataclass
class OpenMax(Detector):
    """Bendale & Boult, "Towards open set deep networks", CVPR 2016.

    ``mu_c`` = mean logits of the correctly classified training samples of class ``c``; a Weibull distribution fits the
    ``tail`` largest ``||z - mu_c||`` of them, and ``w_c`` is its CDF at the distance of the sample. The ``top`` most
    probable classes are revised, ``zh_c = z_c (1 - w_c omega_c)`` with ``omega = (top + 1 - i) / top`` for the i-th of
    them and 0 for the others; ``u = sum_c (z_c - zh_c)``; ``S = e^u / (sum_c e^zh_c + e^u)``.

    As in libMR, the tail is shifted to start at 10,000 before the fit (maximum likelihood, location 0). The fit here is
    exact; the one of SciPy that public codes use stops near it.
    """

    name = "openmax"
    summary = "probability of an unknown class"
    cost = "product"
    reads_features = False
    fits_on = "train+labels"
    search_space: ClassVar[Space] = {"tail": (10, 20, 50), "top": (3, 5, 10)}

    tail: int = number(20, least=2)
    top: int = number(3, least=1)

    def _fit(self, reference: Outputs, head: Head) -> None:
        logits, labels = reference.logits.double(), reference.labels
        right = logits.argmax(1) == labels
        fits = []
        for c in range(logits.shape[1]):
            own = logits[right & (labels == c)]
            distances = row_norms(own - own.mean(0)).sort().values[-self.tail :]
            if len(own) < 2 or not distances[-1] > distances[0]:
                raise InputError(
                    f"{self.name} needs correctly classified training samples of every class that differ in their "
                    f"distance to its mean; class {c} has {len(own)} of them."
                )
            fits.append((own.mean(0), distances[0], *fit_weibull(distances - distances[0])))
        self.means_, self.starts_, self.shapes_, self.scales_ = (torch.stack(part) for part in zip(*fits, strict=True))

    def _score(self, outputs: Outputs) -> Tensor:
        logits = outputs.logits.double()
        top = min(self.top, logits.shape[1])
        best = logits.topk(top, dim=1).indices
        places = torch.arange(top, 0, -1, dtype=torch.float64, device=logits.device) / top
        distances = torch.stack([row_norms(logits - mean) for mean in self.means_], 1)
        moved = torch.log1p((distances - self.starts_) / SHIFT)
        # 1 - exp(-(x / scale)^shape), x = distance - start + 10,000; below the shift there is no distance
        tails = -torch.expm1(-((self.shapes_ * (moved - self.scales_)).clamp_max(700)).exp())
        omega = torch.zeros_like(logits).scatter(1, best, places.expand(logits.shape[0], top))
        taken = logits * tails * omega
        unknown = taken.sum(1)
        return (unknown - energy(torch.cat([logits - taken, unknown[:, None]], 1))).exp()
