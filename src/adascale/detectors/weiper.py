"""WeiPer+KLD: histograms of the features and of many perturbed logits against the typical ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector, Space
from adascale.detectors.parameters import number
from adascale.detectors.rows import in_chunks
from adascale.maths.activations import largest_probability, row_norms, unit_rows
from adascale.maths.histograms import shares, smoothed, symmetric_divergence

_VALUES = 2**21  # perturbed logits at a time
_ADDED, _ADDED_PERTURBED = 0.01, 0.025  # to every bin of the two histograms


@dataclass
class WeiPer(Detector):
    """Granz et al., "WeiPer: OOD detection using weight perturbations of class projections", NeurIPS 2024 (its KLD).

    ``Wt`` = ``repeats`` copies of ``W``, each row plus ``delta ||w_c||`` times a random unit vector, with bias ``b``,
    drawn once with ``seed`` (the public code draws it anew for every batch, so that a score depends on the batch).
    Histograms of each sample's ``a`` and of its ``Wt a + b``: ``bins`` equal bins from the least to the largest
    training value (+ 1e-8), as shares of all entries. ``q`` = the histogram smoothed by a uniform kernel (``smooth``
    bins for ``a``, ``smooth_perturbed`` for the others, ends repeated), ``p`` = the mean of the training samples', not
    smoothed; with .01 (.025) added and normalised again, ``D = KL(p, q) + KL(q, p)``. ``S = D_a + lam_1 D_Wt - lam_2
    mean_r max softmax(Wt_r a + b)``.
    """

    name = "weiper"
    summary = "histograms of features and perturbed logits against typical ones"
    cost = "product"
    fits_on = "train"
    search_space: ClassVar[Space] = {"delta": (1.8, 2.0, 2.4), "lam_1": (0.1, 1, 2.5), "lam_2": (0.1, 1, 2.5)}

    delta: float = number(1.8, least=0)
    repeats: int = number(100, least=1)
    bins: int = number(100, least=1)
    smooth: int = number(4, least=1)
    smooth_perturbed: int = number(15, least=1)
    lam_1: float = number(2.5, least=0)
    lam_2: float = number(0.1, least=0)
    seed: int = 0

    def _fit(self, reference: Outputs, head: Head) -> None:
        self.weight_ = self._drawn(head.matrix)
        self.bias_ = head.offset.repeat(self.repeats)
        self.edges_, self.typical_ = self._typical(lambda: (chunk.features.double() for chunk in in_chunks(reference)))
        self.perturbed_edges_, self.perturbed_typical_ = self._typical(lambda: self._perturbed(reference))

    def _drawn(self, weight: Tensor) -> Tensor:
        """The perturbed weights (repeats * C, D), float32. NumPy keeps the stream of `RandomState` forever."""
        copies = weight.repeat(self.repeats, 1)
        noise = torch.from_numpy(np.random.RandomState(self.seed).normal(size=tuple(copies.shape)))
        return (copies + self.delta * row_norms(copies)[:, None] * unit_rows(noise)).float()

    def _typical(self, pieces: Callable[[], Iterator[Tensor]]) -> tuple[Tensor, Tensor]:
        """The edges of the bins, and the mean histogram of all samples."""
        ends = torch.tensor([(piece.min(), piece.max()) for piece in pieces()], dtype=torch.float64)
        low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
        if not low < high:
            raise InputError(f"{self.name} needs features that vary; every value of the training samples is {low:g}.")
        edges = torch.from_numpy(np.linspace(low, high + 1e-8, self.bins + 1))
        return edges, torch.cat([shares(piece, edges) for piece in pieces()]).mean(0)

    def _perturbed(self, outputs: Outputs) -> Iterator[Tensor]:
        """``Wt a + b`` of the samples in pieces."""
        weight = self.weight_.double().T
        for chunk in in_chunks(outputs):
            for piece in torch.split(chunk.features.double(), max(1, _VALUES // len(self.weight_))):
                yield torch.addmm(self.bias_, piece, weight)

    def _score(self, outputs: Outputs) -> Tensor:
        return self._plain(outputs) + torch.cat(list(map(self._of_perturbed, self._perturbed(outputs))))

    def formula(self, outputs: Outputs) -> Tensor:
        logits = torch.addmm(self.bias_, outputs.features.double(), self.weight_.double().T)
        return self._plain(outputs) + self._of_perturbed(logits)

    def _plain(self, outputs: Outputs) -> Tensor:
        """``D_a``."""
        found = shares(outputs.features.double(), self.edges_)
        return symmetric_divergence(self.typical_, smoothed(found, self.smooth), _ADDED)

    def _of_perturbed(self, logits: Tensor) -> Tensor:
        """What the perturbed logits add to it."""
        found = smoothed(shares(logits, self.perturbed_edges_), self.smooth_perturbed)
        divergence = symmetric_divergence(self.perturbed_typical_, found, _ADDED_PERTURBED)
        classes = logits.shape[1] // self.repeats
        sure = largest_probability(logits.reshape(-1, classes)).reshape(-1, self.repeats).mean(1)
        return self.lam_1 * divergence - self.lam_2 * sure
