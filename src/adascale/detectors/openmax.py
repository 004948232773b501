"""OpenMax: the probability of an unknown class, from the tails of the distances to the class means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import ClassSums
from adascale.detectors.parameters import number
from adascale.detectors.rows import rowwise
from adascale.detectors.statistics import Course, State, Statistic
from adascale.detectors.traits import Space
from adascale.maths.activations import descending, energy, row_norms
from adascale.maths.pieces import predicted
from adascale.maths.tracing import plain
from adascale.maths.weibull import SHIFT, fit_weibull

_LEAST = 2**-53 - 1  # its log1p is finite


@dataclass
class OpenMax(Detector):
    """Bendale & Boult, "Towards open set deep networks", CVPR 2016.

    ``mu_c`` = mean logits of the correctly classified training samples of class ``c``; a Weibull distribution fits the
    ``tail`` largest ``||z - mu_c||`` of them, and ``w_c`` is its CDF at the distance of the sample. The ``top`` most
    probable classes are revised, ``zh_c = z_c (1 - w_c omega_c)`` with ``omega = (top + 1 - i) / top`` for the i-th of
    them and 0 for the others; ``u = sum_c (z_c - zh_c)``; ``S = e^u / (sum_c e^zh_c + e^u)``.

    As in libMR, the tail is shifted to start at 10,000 before the fit (maximum likelihood, location 0). The fit here is
    exact; the one of SciPy that public codes use stops near it.
    """

    name = "openmax"
    summary = "probability of an unknown class"
    cost = "product"
    reads_features = False
    fits_on = "train+labels"
    search_space: ClassVar[Space] = {"tail": (10, 20, 50), "top": (3, 5, 10)}

    tail: int = number(20, least=2)
    top: int = number(3, least=1)

    def _learn(self, head: Head) -> Course:
        means, counts = yield ClassSums(by="correct", values="logits")
        tails: Tensor = yield _Tails(means, self.tail)
        fits = []
        for c, (tail, count) in enumerate(zip(tails, counts.int().tolist(), strict=True)):
            distances = tail[:count].flip(0)
            if count < 2 or not distances[-1] > distances[0]:
                raise InputError(
                    f"{self.name} needs correctly classified training samples of every class that differ in their "
                    f"distance to its mean; class {c} has {count} of them."
                )
            fits.append((distances[0], *fit_weibull(distances - distances[0])))
        self.means_ = means
        self.starts_, self.shapes_, self.scales_ = (torch.stack(part) for part in zip(*fits, strict=True))

    def _score(self, outputs: Outputs) -> Tensor:
        logits = outputs.logits.double()
        top = min(self.top, logits.shape[1])
        # Of equal logits, the lower index first; exporters know top-k alone, which ONNX defines in this way.
        best = descending(logits)[1][:, :top] if plain(logits) else logits.topk(top, dim=1).indices
        places = 1 - torch.arange(top, dtype=torch.float64, device=logits.device) / self.top
        distances = torch.stack([row_norms(logits - mean) for mean in self.means_], 1)
        # 1 - exp(-(x / scale)^shape), x = distance - start + 10,000; 0 where x is not positive
        moved = torch.log1p(((distances - self.starts_) / SHIFT).clamp_min(_LEAST))
        tails = -torch.expm1(-((self.shapes_ * (moved - self.scales_)).clamp_max(700)).exp())
        omega = torch.zeros_like(logits).scatter(1, best, places.expand(logits.shape[0], top))
        taken = logits * tails * omega
        unknown = taken.sum(1)
        return (unknown - energy(torch.cat([logits - taken, unknown[:, None]], 1))).exp()


@dataclass(frozen=True)
class _Tails(Statistic):
    """The largest distances (C, tail) of the correctly classified samples of each class to its mean, in descending
    order; -inf where there are fewer.
    """

    means: Tensor
    tail: int

    def of(self, outputs: Outputs, start: int) -> State:
        classes, found = len(self.means), predicted(outputs.logits)
        right = torch.as_tensor(found == outputs.labels)
        labels = found[right]
        distances = rowwise(outputs[right], lambda chunk: row_norms(chunk.logits.double() - self.means[chunk.labels]))
        order = distances.argsort(descending=True)
        order = order[labels[order].argsort(stable=True)]
        labels = labels[order]
        places = torch.arange(len(labels)) - torch.searchsorted(labels, torch.arange(classes))[labels]
        kept = places < self.tail
        tails = torch.full((classes, self.tail), -torch.inf, dtype=torch.float64)
        tails[labels[kept], places[kept]] = distances[order][kept]
        return {"tails": tails}

    def merged(self, states: Iterable[State]) -> State:
        found: State = {}
        for state in states:
            both = torch.cat([found["tails"], state["tails"]], 1) if found else state["tails"]
            found = {"tails": both.topk(self.tail, dim=1).values}
        return found

    def value(self, state: State) -> Tensor:
        return state["tails"]
