"""GAIA: abnormal gradients at the norm layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.types import Outputs, Tap
from adascale.detectors.base import Detector
from adascale.detectors.inner import LayersOf, names_or


@dataclass
class GAIA_Z(Detector):
    """Chen et al., "GAIA: delving into gradient-based attribution abnormality for out-of-distribution detection",
    NeurIPS 2023 (GAIA-Z).

    ``g`` = the gradient of the largest logit at a norm layer's result, ``q`` = the share of a channel's positions with
    ``g != 0``. ``S = mean q^2`` over all channels of all layers.

    layers: names of modules; left empty, every norm of the network. No images are needed to fit it.
    """

    name = "gaia_z"
    summary = "share of non-zero gradients at the norm layers"
    passes = "1 forward, 1 backward"
    reads_features = False
    nearest = "gradnorm"

    layers: LayersOf = ()

    @property
    def taps(self) -> tuple[Tap, ...]:
        return (Tap(names_or(self.layers, "norms"), "gradient_share"),)

    def _score(self, outputs: Outputs) -> Tensor:
        return mean_square(outputs, self.taps[0])


@dataclass
class GAIA_A(Detector):
    """GAIA-A of the same paper, NeurIPS 2023.

    ``inner`` = the mean over the positions of the gradient of the features' sum at a norm layer's result, for each
    channel; ``outer = sqrt(mean_j |d sum_c log softmax(z)_c / d a_j|)``. ``S = log mean (inner / outer)^2``
    over all channels of all layers. Where the features are pooled maps, the authors' gradients at the
    maps are these but for constant factors.

    layers: names of modules; left empty, every norm of the network (the authors: those of the last two stages, on
    ImageNet). No images are needed to fit it.
    """

    name = "gaia_a"
    summary = "size of the gradients at the norm layers against that at the logits"
    passes = "1 forward, 1 backward"
    reads_features = False
    cost = "product"
    nearest = "gradnorm"

    layers: LayersOf = ()

    @property
    def taps(self) -> tuple[Tap, ...]:
        return (Tap(names_or(self.layers, "norms"), "gradient_mean"),)

    def _score(self, outputs: Outputs) -> Tensor:
        head = self.head_
        slope = (1 - head.weight.shape[0] * outputs.logits.double().softmax(1)) @ head.matrix
        return mean_square(outputs, self.taps[0]).clamp_min(_LEAST).log() - slope.abs().mean(1).clamp_min(_LEAST).log()


_LEAST = 1e-300


def mean_square(outputs: Outputs, tap: Tap) -> Tensor:
    """The mean over all channels of all layers: the sums and numbers that the tap gives for each layer."""
    sums, counts = torch.stack(outputs.taps[tap]).double().sum(0).unbind(1)
    return sums / counts.clamp_min(1)
