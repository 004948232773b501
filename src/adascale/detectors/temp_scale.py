"""TempScale: the largest probability at the temperature that calibrates the network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.rows import in_chunks, rowwise
from adascale.maths.activations import largest_probability

_LOWEST, _HIGHEST, _STEPS = -7.0, 7.0, 60  # of log(1 / T): halving 60 times leaves less than rounding


@dataclass
class TempScale(Detector):
    """Guo et al., "On calibration of modern neural networks", ICML 2017.

    ``T`` minimises the cross-entropy of ``z / T`` on labelled ID samples that the network was not trained on;
    ``S = -max softmax(z / T)``. The cross-entropy is convex in ``1 / T``, so bisection of its derivative finds the one
    minimum between ``e^-7`` and ``e^7``; public codes take 50 steps of L-BFGS at a rate of 0.01, which can stop short
    of it. If no sample has a logit above that of its label there is no minimum, and ``T = 1``.
    """

    name = "temp_scale"
    summary = "largest probability at the calibrating temperature"
    reads_features = False
    fits_on = "val+labels"

    def _fit(self, reference: Outputs, head: Head) -> None:
        if rowwise(reference, _none_larger, torch.bool).all():
            self.temperature_ = torch.ones((), dtype=torch.float64)
            return
        low, high = _LOWEST, _HIGHEST
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if _slope(reference, middle) > 0 else (middle, high)
        self.temperature_ = torch.tensor(-(low + high) / 2, dtype=torch.float64).exp()

    def _score(self, outputs: Outputs) -> Tensor:
        return -largest_probability(outputs.logits.double() / self.temperature_)


def _none_larger(chunk: Outputs) -> Tensor:
    """Whether no logit exceeds that of the label; with equal ones the cross-entropy has no minimum either."""
    assert chunk.labels is not None  # checked by the base class
    return chunk.logits.gather(1, chunk.labels[:, None]).squeeze(1) >= chunk.logits.amax(1)


def _slope(reference: Outputs, log_inverse: float) -> float:
    """The derivative by ``1 / T`` of the summed cross-entropy: ``sum of E_p[z] - z_y``."""
    total, inverse = 0.0, torch.tensor(log_inverse, dtype=torch.float64).exp()
    for chunk in in_chunks(reference):
        assert chunk.labels is not None  # checked by the base class
        logits = chunk.logits.double()
        off = logits - logits.gather(1, chunk.labels[:, None])
        total += float(((logits * inverse).softmax(1) * off).sum())
    return total
