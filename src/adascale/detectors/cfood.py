"""CFOOD: among which share of its nearest neighbours a sample counts for enough training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import squared_distances
from adascale.detectors.parameters import number
from adascale.detectors.statistics import Count, Course, Drawn
from adascale.detectors.traits import Space
from adascale.maths.activations import share_count, unit_rows

_SAME = 1e-12  # squared distances of unit vectors that differ by less are equal: rounding depends on the batch


@dataclass
class CFOOD(Detector):
    """CFOOD, as in OpenOOD's post-processors: Angiulli, "CFOF: a concentration free measure for anomaly detection",
    TKDD 2020, on unit features.

    The bank is a draw with ``seed`` of ``fraction`` of the training samples, as unit vectors ``r_i``, n of them.
    ``d_i(kappa)`` is the squared distance of ``r_i`` to the sample of the bank at place ``int(kappa n - 1) + 1``,
    itself at place 0, for the ``kappa`` of a fixed grid of 230 from .001 to .99. ``S = kappa``, the least at which
    ``d_i(kappa) >= ||u - r_i||^2`` for a share ``rho`` of the bank at least, else 1; ``u = a / ||a||``. The public code
    draws its bank without a seed.
    """

    name = "cfood"
    summary = "how early a sample becomes a neighbour of training samples"
    cost = "bank"
    fits_on = "train"
    search_space: ClassVar[Space] = {"rho": (0.001, 0.01, 0.05, 0.1), "fraction": (0.1, 1.0)}

    rho: float = number(0.01, above=0, most=1, kind="a share")
    fraction: float = number(0.1, above=0, most=1, kind="a share")
    seed: int = 0

    def _learn(self, head: Head) -> Course:
        total: int = yield Count()
        if total < 2:
            raise InputError(f"CFOOD got {total} training sample; it needs 2.")
        n = max(2, share_count(total, self.fraction))
        drawn, _ = Drawn.by(self.seed, n, total)
        self.bank_ = unit_rows((yield drawn)["features"])
        kappas, places = _grid(n)
        self.kappas_ = torch.from_numpy(np.append(kappas, 1.0))
        chosen = torch.from_numpy(places) + 1
        blocks = (squared_distances(block, self.bank_) for block in torch.split(self.bank_, 1024))
        self.reach_ = torch.cat([block.sort(1).values[:, chosen] for block in blocks]) + _SAME

    def _score(self, outputs: Outputs) -> Tensor:
        distances = squared_distances(unit_rows(outputs.features), self.bank_)
        # Reaches grow with kappa: how many of its own a distance exceeds is where the comparison turns.
        first = torch.searchsorted(self.reach_, distances.T.contiguous()).T
        return self.kappas_[first.kthvalue(self._needed(), dim=1).values]

    def formula(self, outputs: Outputs) -> Tensor:
        distances = squared_distances(unit_rows(outputs.features), self.bank_)
        needed, score = self._needed(), self.kappas_[-1].expand(distances.shape[0])
        for i in range(self.reach_.shape[1] - 1, -1, -1):
            enough = (self.reach_[:, i] >= distances).double().sum(1) >= needed
            score = torch.where(enough, self.kappas_[i], score)
        return score

    def _needed(self) -> int:
        """The fewest of the bank's samples that are the share ``rho``."""
        n = len(self.bank_)
        return next(count for count in range(max(1, int(self.rho * n) - 1), n + 1) if count / n >= self.rho)


def _grid(n: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The values of kappa, and their places; of equal places the first."""
    kappas = np.concatenate([np.linspace(0.001, 0.1, 100), np.linspace(0.105, 0.5, 81), np.linspace(0.51, 0.99, 49)])
    places = (kappas * n - 1).astype(np.int64)
    kept = np.append(True, places[:-1] < places[1:])
    return kappas[kept], places[kept]
