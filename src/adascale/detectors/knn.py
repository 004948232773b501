"""KNN: distance to the K-th nearest training sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors import neighbours
from adascale.detectors.base import Detector
from adascale.detectors.classes import bank_blocks
from adascale.detectors.parameters import number
from adascale.detectors.statistics import Course, Rows
from adascale.detectors.traits import Space
from adascale.maths.activations import row_norms, unit_rows
from adascale.maths.shortlist import fits_float32, kth_largest_open, pairwise, product_error

if TYPE_CHECKING:
    from typing_extensions import Self

_ROWS = 4096  # of the bank at a time, in float32; a smaller bank is searched in float64 at once
_SPARE = 14  # beyond the k nearest
_LARGEST = 1.5  # |u . v - ||v||^2 / 2| is at most that


@dataclass
class KNN(Detector):
    """Sun et al., "Out-of-distribution detection with deep nearest neighbors", ICML 2022.

    ``S = ||u - u_(K)||``: distance of the unit vector ``u = a / ||a||`` to its ``k``-th nearest among the training
    samples'. (The reference returns its square, the same order.) The bank is the training features themselves (shared
    with the caller, not copied), searched in blocks. An all-zero row has ``u = 0``.

    The search is a product in float32, which leaves a few training samples that could be the ``k``-th nearest; their
    distances in float64 decide. Rows that it leaves more open than that are searched in float64. For one sample
    against a large bank, FAISS makes that product where it is installed; the scores are the same to the bit.
    """

    name = "knn"
    summary = "distance to the K-th nearest training sample"
    cost = "bank"
    fits_on = "train"
    search_space: ClassVar[Space] = {"k": (50, 100, 200, 500, 1000)}

    k: int = number(50, least=1)

    def _learn(self, head: Head) -> Course:
        bank: Tensor = yield Rows(features_alone=True)
        if len(bank) < self.k:
            raise InputError(f"KNN with k={self.k} got {len(bank)} training samples; give as many, or lower k.")
        self.bank_, self.lengths_ = bank, _lengths(bank)

    def restore(self, state: Mapping[str, Tensor], head: Head) -> Self:
        given = dict(state)
        if "lengths_" not in given:  # files of earlier versions lack them
            given["lengths_"] = _lengths(given["bank_"])
        return super().restore(given, head)

    def _score(self, outputs: Outputs) -> Tensor:
        unit = unit_rows(outputs.features)
        if len(self.bank_) < _ROWS or not fits_float32(self.lengths_):
            return self._searched(unit)
        similar, index = self._shortlist(unit.float())
        error = _LARGEST * product_error(unit.shape[1] + 1)
        nearer, open_ = kth_largest_open(similar, self.k, error)
        distance = torch.full(similar.shape, torch.inf, dtype=torch.float64).masked_fill(nearer, -torch.inf)
        rows, places = open_.nonzero(as_tuple=True)
        distance[rows, places] = pairwise(rows, index[rows, places], lambda row, near: self._distance(unit[row], near))
        score = distance.kthvalue(self.k, dim=1).values
        cut_off = open_[:, -1] & (similar.shape[1] < len(self.bank_))  # others may lie beyond the end of the list
        if cut_off.any():
            score[cut_off] = self._searched(unit[cut_off])
        return score

    def _shortlist(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        """``u . v - ||v||^2 / 2`` of the nearest training samples and some more, in descending order, in float32, and
        which samples they are.
        """
        length, start = self.k + _SPARE + self.k // 8, 0
        if (found := neighbours.nearest(unit, self.bank_, length)) is not None:
            return found
        best, index = unit.new_empty(len(unit), 0), torch.empty(len(unit), 0, dtype=torch.int64)
        for block, lengths in zip(bank_blocks(self.bank_, _ROWS), bank_blocks(self.lengths_, _ROWS), strict=True):
            scale = torch.where(lengths > 0, 1 / lengths, 0.0).float()
            similar = (unit @ block.float().T).mul_(scale).sub_(0.5 * (lengths > 0))
            near = similar.topk(min(length, len(block)), dim=1)
            best, index = torch.cat([best, near.values], 1), torch.cat([index, near.indices + start], 1)
            kept = best.topk(min(length, best.shape[1]), dim=1)
            best, index = kept.values, index.gather(1, kept.indices)
            start += len(block)
        return best, index

    def _searched(self, unit: Tensor) -> Tensor:
        """The score by a search in float64 alone."""
        nearest = torch.empty(len(unit), 0, dtype=torch.float64)
        index = torch.empty(len(unit), 0, dtype=torch.int64)
        start = 0
        for block in bank_blocks(self.bank_):
            bank = unit_rows(block)
            # ||u - v||^2 but for ||u||^2, which is the same for all v
            distance = bank.square().sum(1) - 2 * unit @ bank.T
            found = distance.topk(min(self.k, len(bank)), dim=1, largest=False)
            nearest, index = torch.cat([nearest, found.values], 1), torch.cat([index, found.indices + start], 1)
            best = nearest.topk(min(self.k, nearest.shape[1]), dim=1, largest=False)
            nearest, index = best.values, index.gather(1, best.indices)
            start += len(block)
        # Once more from the vectors themselves: the difference of squares above loses small distances.
        return self._distance(unit, index[:, -1])

    def _distance(self, unit: Tensor, near: Tensor) -> Tensor:
        return row_norms(unit - unit_rows(self.bank_[near]))

    def formula(self, outputs: Outputs) -> Tensor:
        unit, bank = unit_rows(outputs.features), unit_rows(self.bank_)
        nearest = (bank.square().sum(1) - 2 * unit @ bank.T).topk(self.k, dim=1, largest=False).indices[:, -1]
        return row_norms(unit - bank[nearest])


def _lengths(bank: Tensor) -> Tensor:
    return torch.cat([row_norms(block.double()) for block in bank_blocks(bank)])
