"""NAC: how often training images have put each neuron into the state that it is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from adascale.core.types import Head, Outputs, Tap
from adascale.detectors.base import Detector
from adascale.detectors.inner import LayersOf, names_or
from adascale.detectors.parameters import number
from adascale.detectors.traits import Space

_BASE = 1e3  # of the logarithm that spaces the bins
_BEYOND = 1.2


@dataclass
class NAC(Detector):
    """Liu et al., "Neuron activation coverage: rethinking out-of-distribution detection and generalization", ICLR 2024
    (NAC-UE; pytorch-ood's NACUE).

    A neuron is a channel's mean ``m``; with ``L = -mean_c log softmax(z)_c``, the divergence from the uniform
    distribution but for a constant, its state is ``sigmoid(steepness m dL/dm)``. The states of the training samples are
    counted in ``bins - 1`` bins, which are dense near 0 and 1. The coverage of a bin is ``min(count / enough, 1)``;
    ``S = -mean_l mean_i`` of the coverage of the bin that neuron ``i`` of layer ``l`` is in.

    layers: names of modules; left empty, the network's stages (see `Tap`). The authors choose steepness, bins and
    enough (their alpha, M, O*) for each layer of each network on OOD images, and their public code sums over positions
    where this takes means.
    """

    name = "nac"
    summary = "how often training images had the neurons in this state"
    cost = "product"
    fits_on = "train"
    reads_features = False
    passes = "1 forward, 1 backward"
    nearest = "knn"
    search_space: ClassVar[Space] = {"steepness": (1, 10, 100, 1000), "bins": (50, 500), "enough": (5, 50, 500)}

    layers: LayersOf = ()
    steepness: float = number(100, above=0)
    bins: int = number(50, least=4)
    enough: int = number(50, least=1)

    @property
    def taps(self) -> tuple[Tap, ...]:
        return (Tap(names_or(self.layers, "stages"), "attribution"),)

    def _fit(self, reference: Outputs, head: Head) -> None:
        self.edges_ = torch.from_numpy(edges(self.bins))
        layers = reference.taps[self.taps[0]]
        self.widths_ = torch.tensor([layer.shape[1] for layer in layers])
        self.coverage_ = torch.cat([self._covered(layer) for layer in layers])

    def _covered(self, layer: Tensor) -> Tensor:
        """The coverage of every bin of every neuron of a layer (K, bins - 1)."""
        count = len(self.edges_) - 1
        counts = torch.zeros(layer.shape[1] * count, dtype=torch.float64)
        places = count * torch.arange(layer.shape[1])
        for rows in torch.split(layer, 4096):
            counts += torch.bincount((self._bins(rows) + places).flatten(), minlength=len(counts))
        return (counts.view(-1, count) / self.enough).clamp_max(1)

    def _bins(self, layer: Tensor) -> Tensor:
        states = torch.sigmoid(self.steepness * layer.double())
        return (torch.bucketize(states, self.edges_, right=True) - 1).clamp(0, len(self.edges_) - 2)

    def _score(self, outputs: Outputs) -> Tensor:
        layers = outputs.taps[self.taps[0]]
        tables = torch.split(self.coverage_, self.widths_.tolist())
        return -torch.stack(
            [table.T.gather(0, self._bins(layer)).mean(1) for layer, table in zip(layers, tables, strict=True)], 1
        ).mean(1)


def edges(bins: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The ends of the bins, as the authors space them: logarithms from 0 to 1/2, and the same from the other end."""
    low = np.log(np.linspace(1, np.sqrt(_BASE), bins // 2)) / np.log(_BASE)
    both = np.concatenate([low[:-1], (1 - low)[::-1]])
    both[-1] += 1e-2
    return np.append(both, _BEYOND)
