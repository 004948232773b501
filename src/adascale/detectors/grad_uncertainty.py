"""Gradients as uncertainty: squared length of the last layer's gradient, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.base import Detector


@dataclass
class GradUncertainty(Detector):
    """Lee & AlRegib, "Gradients as a measure of uncertainty in neural networks", ICIP 2020, for the last layer.

    The squared length of the gradient, with respect to ``W`` and ``b``, of the loss against a target of 1 for every
    class, in closed form: ``S = -(||a||^2 + 1) ||C p - 1||^2``, ``p = softmax(z)``. The paper trains a classifier on
    such norms of all layers with known OOD images; without these the norm itself is the score, as in pytorch-ood with
    the last layer's parameters. No images are needed to fit it.
    """

    name = "grad_uncertainty"
    summary = "squared length of the last layer's gradient"

    def _score(self, outputs: Outputs) -> Tensor:
        p = outputs.logits.double().softmax(1)
        size = outputs.features.double().square().sum(1) + (self.head_.bias is not None)
        return -size * (p.shape[1] * p - 1).square().sum(1)
