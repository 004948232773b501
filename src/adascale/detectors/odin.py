"""ODIN: softmax at a high temperature, on an image moved towards its predicted class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.types import Outputs, View
from adascale.detectors.base import Detector
from adascale.detectors.parameters import number
from adascale.detectors.traits import Space


@dataclass
class ODIN(Detector):
    """Liang et al., "Enhancing the reliability of out-of-distribution image detection in neural networks", ICLR 2018.

    ``x' = x - eta sign(d CE(z / T, y_pred) / d x) / std`` with ``sign(0) = 1``; ``S = -max softmax(z(x') / T)``.
    ``std`` is that of the input's normalisation; left empty, `OODDetector` takes it from its preprocessing, and without
    one the step is ``eta`` in normalised units. No images are needed to fit it.
    """

    name = "odin"
    summary = "softmax at a high temperature on a perturbed image"
    cost = "product"
    passes = "2 forward, 1 backward"
    search_space: ClassVar[Space] = {"temperature": (1, 10, 100, 1000), "eta": (0.0014, 0.0028)}

    temperature: float = number(1000, above=0)
    eta: float = 0.0014
    std: tuple[float, ...] = ()

    def for_input(self, std: tuple[float, ...]) -> Detector:
        return self if self.std else replace(self, std=tuple(std))

    @property
    def view(self) -> View:
        return View("all", step=-self.eta, temperature=self.temperature, std=self.std)

    @property
    def views(self) -> tuple[View, ...]:
        return (self.view,)

    def _score(self, outputs: Outputs) -> Tensor:
        logits = self.head_(outputs.views[self.view])
        return -torch.softmax(logits / self.temperature, dim=1).amax(1)
