"""WeiPer+KLD: histograms of the features and of many perturbed logits against the typical ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.shards import Shards
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.parameters import number
from adascale.detectors.rows import finite_rows, in_chunks, rowwise
from adascale.detectors.statistics import Course, State, Statistic, Sums, Together
from adascale.detectors.traits import Space
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

    def _learn(self, head: Head) -> Course:
        self.weight_ = self._drawn(head.matrix)
        self.bias_ = head.offset.repeat(self.repeats)
        pieces = _Pieces(), _Pieces(self.weight_, self.bias_)
        plain, perturbed = yield Together(tuple(map(_Ends, pieces)))
        self.edges_, self.perturbed_edges_ = self._edges(*plain), self._edges(*perturbed)
        edges = self.edges_, self.perturbed_edges_
        self.typical_, self.perturbed_typical_ = yield Together(tuple(map(_MeanHistogram, pieces, edges)))

    def _drawn(self, weight: Tensor) -> Tensor:
        """The perturbed weights (repeats * C, D), float32. NumPy keeps the stream of `RandomState` forever."""
        copies = weight.repeat(self.repeats, 1)
        noise = torch.from_numpy(np.random.RandomState(self.seed).normal(size=tuple(copies.shape)))
        return (copies + self.delta * row_norms(copies)[:, None] * unit_rows(noise)).float()

    def _edges(self, low: float, high: float) -> Tensor:
        """The edges of the bins for values between these."""
        if not low < high:
            raise InputError(f"{self.name} needs features that vary; every value of the training samples is {low:g}.")
        return torch.from_numpy(np.linspace(low, high + 1e-8, self.bins + 1))

    def _score(self, outputs: Outputs) -> Tensor:
        return self._weighted(self._terms(outputs))

    def _terms(self, outputs: Outputs) -> Tensor:
        """``D_a``, ``D_Wt`` and the mean of the largest probabilities (N, 3)."""
        pieces = _Pieces(self.weight_, self.bias_)(outputs)
        return torch.column_stack((self._plain(outputs), torch.cat(list(map(self._of_perturbed, pieces)))))

    def _weighted(self, terms: Tensor) -> Tensor:
        return terms[:, 0] + (self.lam_1 * terms[:, 1] - self.lam_2 * terms[:, 2])

    def formula(self, outputs: Outputs) -> Tensor:
        logits = torch.addmm(self.bias_, outputs.features.double(), self.weight_.double().T)
        return self._weighted(torch.column_stack((self._plain(outputs), self._of_perturbed(logits))))

    def _plain(self, outputs: Outputs) -> Tensor:
        """``D_a``."""
        found = shares(outputs.features.double(), self.edges_)
        return symmetric_divergence(self.typical_, smoothed(found, self.smooth), _ADDED)

    def _of_perturbed(self, logits: Tensor) -> Tensor:
        """``D_Wt`` and the mean of the largest probabilities (N, 2)."""
        found = smoothed(shares(logits, self.perturbed_edges_), self.smooth_perturbed)
        divergence = symmetric_divergence(self.perturbed_typical_, found, _ADDED_PERTURBED)
        classes = logits.shape[1] // self.repeats
        sure = largest_probability(logits.reshape(-1, classes)).reshape(-1, self.repeats).mean(1)
        return torch.column_stack((divergence, sure))

    def sweep(
        self,
        points: Sequence[Mapping[str, Any]],
        reference: Outputs | Shards | None,
        head: Head,
        sets: Sequence[Outputs],
        train: Outputs | Shards | None = None,
    ) -> Iterator[tuple[int, list[Tensor] | None]]:
        """As in `Detector`; points that differ in ``lam_1`` and ``lam_2`` alone share the product with ``Wt``."""
        made = {i: method for i, point in enumerate(points) if (method := self._at(point)) is not None}
        yield from ((i, None) for i in range(len(points)) if i not in made)
        groups: dict[str, dict[int, WeiPer]] = {}
        for i, method in made.items():
            groups.setdefault(repr(replace(method, lam_1=0.0, lam_2=0.0)), {})[i] = method
        for group in groups.values():
            fitted = next(iter(group.values()))
            try:
                fitted.fit(reference, head, *(() if train is None else (train,)))
            except InputError:
                yield from ((i, None) for i in group)
                continue
            found = [fitted._guarded_terms(outputs) for outputs in sets]
            for i, method in group.items():
                scores = [method._weighted(terms) for terms in found]
                yield i, [torch.where(values.isfinite(), values, math.inf) for values in scores]

    def _guarded_terms(self, outputs: Outputs) -> Tensor:
        """`_terms`, with infinity where activations are not finite."""
        finite = rowwise(outputs, lambda chunk: finite_rows(chunk, self.wants), torch.bool)
        terms = torch.tensor([math.inf, 0.0, 0.0], dtype=torch.float64).repeat(len(outputs), 1)
        if finite.any():
            terms[finite] = torch.cat([self._terms(chunk) for chunk in in_chunks(outputs[finite])])
        return terms


@dataclass(frozen=True)
class _Pieces:
    """The features of samples, or their ``Wt a + b`` where there are weights, in pieces."""

    weight: Tensor | None = None
    bias: Tensor | None = None

    def __call__(self, outputs: Outputs) -> Iterator[Tensor]:
        weight = None if self.weight is None else self.weight.double().T
        for chunk in in_chunks(outputs):
            if weight is None or self.bias is None:
                yield chunk.features.double()
                continue
            for piece in torch.split(chunk.features.double(), max(1, _VALUES // weight.shape[1])):
                yield torch.addmm(self.bias, piece, weight)


@dataclass(frozen=True)
class _Ends(Statistic):
    """The least and the largest value."""

    pieces: _Pieces

    def of(self, outputs: Outputs, start: int) -> State:
        found = [(float(piece.min()), float(piece.max())) for piece in self.pieces(outputs)]
        low, high = zip((np.inf, -np.inf), *found, strict=True)
        return {"ends": torch.tensor([min(low), max(high)], dtype=torch.float64)}

    def merged(self, states: Iterable[State]) -> State:
        ends = torch.stack([state["ends"] for state in states])
        return {"ends": torch.stack([ends[:, 0].min(), ends[:, 1].max()])}

    def value(self, state: State) -> list[float]:
        ends: list[float] = state["ends"].tolist()
        return ends


@dataclass(frozen=True)
class _MeanHistogram(Sums):
    """The mean over the samples of the shares of their values in each bin."""

    pieces: _Pieces
    edges: Tensor

    def of(self, outputs: Outputs, start: int) -> State:
        total = torch.zeros(len(self.edges) - 1, dtype=torch.float64)
        for piece in self.pieces(outputs):
            total += shares(piece, self.edges).sum(0)
        return {"total": total, "rows": torch.tensor(len(outputs))}

    def value(self, state: State) -> Tensor:
        return state["total"] / int(state["rows"])
