"""Gram: how far the correlations of feature maps leave the range that they have in training images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Layers, Outputs, Tap
from adascale.detectors.base import Detector
from adascale.detectors.inner import LayersOf, names_or, tapped_chunks
from adascale.detectors.parameters import number
from adascale.detectors.traits import Space
from adascale.maths.pieces import predicted

_ADDED = 1e-6  # to a bound, before it divides


@dataclass
class Gram(Detector):
    """Sastry & Oore, "Detecting out-of-distribution examples with Gram matrices", ICML 2020.

    With ``x`` (C, S) the map of a layer, ``v = row sums of (x^p x^p^T)^(1/p)`` for each power ``p``, as in the authors'
    code. Of the training samples that are predicted as class ``c``, ``min_c`` and ``max_c`` are the least and the
    largest ``v``. ``delta_l = sum over powers and channels of relu(min_c - v) / |min_c + 1e-6| + relu(v - max_c) /
    |max_c + 1e-6|`` with ``c`` the predicted class; ``S = sum_l delta_l / E[delta_l]``.

    ``E[delta_l]`` is the mean over ``held_out`` of the training samples of each class, drawn with ``seed``, which the
    bounds do not know (1 if it is 0, as without such samples). The authors take it over test images. A class that no
    training sample is predicted as has the bounds of all.

    layers: names of modules; left empty, the network's stages (see `Tap`). powers: the authors' 1 to 10.
    """

    name = "gram"
    summary = "correlations of inner feature maps outside their training range"
    cost = "product"
    fits_on = "train"
    reads_features = False
    nearest = "mds"
    search_space: ClassVar[Space] = {"powers": ((1,), (1, 2), (1, 2, 3, 4, 5), tuple(range(1, 11)))}

    layers: LayersOf = ()
    powers: tuple[int, ...] = tuple(range(1, 11))
    held_out: float = number(0.1, least=0, most=0.9, kind="a share")
    seed: int = 0

    def _check_parameters(self) -> None:
        if not self.powers or min(self.powers) < 1:
            raise InputError(f"powers={self.powers}; give whole numbers of at least 1.")

    @property
    def taps(self) -> tuple[Tap, ...]:
        return (Tap(names_or(self.layers, "stages"), "gram", self.powers),)

    def _fit(self, reference: Outputs, head: Head) -> None:
        classes, layers = predicted(reference.logits), reference.taps[self.taps[0]]
        kept = self._kept(classes)
        bounds = [_bounds(layer, classes, kept, head.weight.shape[0]) for layer in layers]
        self.low_, self.high_ = (torch.cat(side, 1) for side in zip(*bounds, strict=True))
        self.widths_ = torch.tensor([layer.shape[1] for layer in layers])
        self.expected_ = torch.ones(len(layers), dtype=torch.float64)
        if not kept.all():
            held = reference[~kept]
            deviations = torch.cat([self._deviations(chunk) for chunk in tapped_chunks(held, self.taps[0])]).mean(0)
            self.expected_ = torch.where(deviations > 0, deviations, 1.0)

    def _kept(self, classes: Tensor) -> Tensor:
        """Which samples set the bounds: all but the share ``held_out`` of each class."""
        kept, generator = torch.ones(len(classes), dtype=torch.bool), torch.Generator().manual_seed(self.seed)
        for c in torch.unique(classes).tolist():
            own = (classes == c).nonzero().squeeze(1)
            order = torch.randperm(len(own), generator=generator)
            kept[own[order[: int(self.held_out * len(own))]]] = False
        return kept

    def _deviations(self, outputs: Outputs) -> Tensor:
        """``delta_l`` (N, L), float64."""
        classes, found = predicted(outputs.logits), outputs.taps[self.taps[0]]
        return torch.stack([_outside(*parts, classes) for parts in self._with_bounds(found)], 1)

    def _with_bounds(self, layers: Layers) -> list[tuple[Tensor, Tensor, Tensor]]:
        widths = self.widths_.tolist()
        return list(zip(layers, torch.split(self.low_, widths, 1), torch.split(self.high_, widths, 1), strict=True))

    def _score(self, outputs: Outputs) -> Tensor:
        return (self._deviations(outputs) / self.expected_).sum(1)


def _bounds(layer: Tensor, classes: Tensor, kept: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The least and the largest values (C, K) of the kept samples, by class."""
    low, high = (end.repeat(count, 1) for end in layer[kept].aminmax(dim=0))
    for c in torch.unique(classes[kept]).tolist():
        low[c], high[c] = layer[kept & (classes == c)].aminmax(dim=0)
    return low, high


def _outside(values: Tensor, low: Tensor, high: Tensor, classes: Tensor) -> Tensor:
    """``delta_l`` (N,) of one layer."""
    values, low, high = values.double(), low[classes].double(), high[classes].double()
    below = (low - values).clamp_min(0) / (low + _ADDED).abs()
    above = (values - high).clamp_min(0) / (high + _ADDED).abs()
    return (below + above).sum(1)
