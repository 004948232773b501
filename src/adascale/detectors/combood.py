"""CombOOD: extreme values of all layers and the nearest features, as one likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs, Tap
from adascale.detectors.base import Detector
from adascale.detectors.inner import LayersOf, names_or
from adascale.detectors.knn import KNN
from adascale.detectors.parameters import number
from adascale.detectors.traits import Space
from adascale.maths.power import fit_yeo_johnson, yeo_johnson

_NEAREST = 1e-12  # squared distance; a training sample itself has 0


@dataclass
class CombOOD(Detector):
    """Rajasekaran et al., "COMBOOD: a semiparametric approach for detecting out-of-distribution data for image
    classification", SDM 2024.

    ``y`` = minus the least and the largest value of what each activation layer is given, and of the logits;
    standardised, Yeo-Johnson transformed and standardised again, as on the training samples. ``M^2 = y^T (Sigma + reg
    I)^-1 y``. ``d_k`` = the distance of ``a / ||a||`` to the ``k``-th nearest of the training samples. ``S = M^2 +
    sqrt(D) log d_k^2``, as in the authors' code.

    layers: names of modules, whose results are taken; left empty, what every activation module is given, before it
    writes into it, or the results of the norms where there is none (see `Tap`).
    """

    name = "combood"
    summary = "extreme values of all layers, and the nearest features"
    cost = "bank"
    fits_on = "train"
    nearest = "knn"
    search_space: ClassVar[Space] = {"k": (1, 10, 50, 100), "reg": (0.01, 1)}

    layers: LayersOf = ()
    k: int = number(50, least=1)
    reg: float = number(1, above=0)

    @property
    def taps(self) -> tuple[Tap, ...]:
        return (Tap(names_or(self.layers, "activations"), "minmax"),)

    def _fit(self, reference: Outputs, head: Head) -> None:
        if len(reference) < max(2, self.k):
            raise InputError(
                f"{self.name} with k={self.k} got {len(reference)} training samples; give {max(2, self.k)}, or lower k."
            )
        nearest = KNN(k=self.k).fit(reference, head)
        self.bank_, self.lengths_ = nearest.state()["bank_"], nearest.state()["lengths_"]
        values = self._extremes(reference)
        self.mean_, deviation = values.mean(0), values.std(0, unbiased=False)
        self.scale_ = torch.where(deviation > 0, 1 / deviation.clamp_min(1e-300), 1.0)
        scaled = (values - self.mean_) * self.scale_
        self.powers_ = fit_yeo_johnson(scaled)
        made = yeo_johnson(scaled, self.powers_)
        self.made_mean_, deviation = made.mean(0), made.std(0, unbiased=False)
        self.made_scale_ = torch.where(deviation > 0, 1 / deviation.clamp_min(1e-300), 1.0)
        standard = (made - self.made_mean_) * self.made_scale_
        covariance = standard.T.cov() if standard.shape[1] > 1 else standard.var(0)[None]
        self.root_ = torch.linalg.cholesky(covariance + self.reg * torch.eye(len(covariance), dtype=torch.float64))

    def _extremes(self, outputs: Outputs) -> Tensor:
        low, high = outputs.logits.double().aminmax(dim=1)
        layers = [layer.double() for layer in outputs.taps[self.taps[0]]]
        return torch.cat([-low[:, None], high[:, None], *layers], 1)

    def _score(self, outputs: Outputs) -> Tensor:
        scaled = (self._extremes(outputs) - self.mean_) * self.scale_
        standard = (yeo_johnson(scaled, self.powers_) - self.made_mean_) * self.made_scale_
        whitened: Tensor = torch.linalg.solve_triangular(self.root_, standard.T, upper=False)
        nearest = KNN(k=self.k).restore({"bank_": self.bank_, "lengths_": self.lengths_}, self.head_)
        distance = nearest._score(outputs).square().clamp_min(_NEAREST)
        return whitened.square().sum(0) + math.sqrt(outputs.features.shape[1]) * distance.log()
