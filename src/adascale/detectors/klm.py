"""KL matching: divergence from the typical softmax of a class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.rows import in_chunks
from adascale.detectors.statistics import Course, State, Statistic
from adascale.maths.shortlist import pair_products, product_error

_FEW = 4  # classes for each sample; with more, one product in float64 takes less time
_LOWEST = -1e30  # lower logarithms do not fit into float32
_SLACK = 1e-12  # more than rounding of a logarithm near 0, and probabilities too small for float32, could change


@dataclass
class KLM(Detector):
    """Hendrycks et al., "Scaling out-of-distribution detection for real-world settings", ICML 2022 (KL matching).

    ``d_c`` = mean softmax of the ID samples predicted as ``c``; ``S = min_c KL(softmax(z) || d_c)``. Classes that are
    never predicted do not count (the reference gives them a one-hot mean, which is infinitely far from any softmax).
    """

    name = "klm"
    summary = "divergence from the typical softmax of the nearest class"
    reads_features = False
    cost = "product"
    fits_on = "val"

    def _learn(self, head: Head) -> Course:
        found: State = yield _LogSums()
        seen = found["counts"] > 0
        self.log_means_ = found["total"][seen] - found["counts"][seen].log()[:, None]

    def _score(self, outputs: Outputs) -> Tensor:
        log_p = outputs.logits.double().log_softmax(1)
        p = log_p.exp()
        return (p * log_p).sum(1) + self._least_cross_entropy(p)

    def formula(self, outputs: Outputs) -> Tensor:
        log_p = outputs.logits.double().log_softmax(1)
        p = log_p.exp()
        return (p * log_p).sum(1) + (p @ -self.log_means_.T).amin(1)

    def _least_cross_entropy(self, p: Tensor) -> Tensor:
        """``min_c -p . log d_c``: in float32 for all classes, then in float64 for those that could be the least."""
        rough = p.float() @ -self.log_means_.T.float()
        # No term is negative, so the bound on the error is a share of the value.
        most = rough.amin(1, keepdim=True) * (1 + 3 * product_error(p.shape[1])) + _SLACK
        rows, classes = (rough <= most).nonzero(as_tuple=True)
        if len(rows) > _FEW * len(p) or self.log_means_.amin() < _LOWEST:
            return (p @ -self.log_means_.T).amin(1)
        values = -pair_products(p, self.log_means_, rows, classes)
        return torch.full((len(p),), torch.inf, dtype=torch.float64).scatter_reduce(0, rows, values, "amin")


@dataclass(frozen=True)
class _LogSums(Statistic):
    """The logarithms of the summed probabilities (C, C), and the counts (C), by predicted class."""

    def of(self, outputs: Outputs, start: int) -> State:
        classes = outputs.logits.shape[1]
        total = torch.full((classes, classes), -torch.inf, dtype=torch.float64)
        counts = torch.zeros(classes, dtype=torch.float64)
        for chunk in in_chunks(outputs):
            log_p, predicted = chunk.logits.double().log_softmax(1), chunk.logits.argmax(1)
            counts += torch.bincount(predicted, minlength=classes)
            for c in torch.unique(predicted).tolist():  # in logarithms, so that no probability is lost to underflow
                total[c] = torch.logaddexp(total[c], log_p[predicted == c].logsumexp(0))
        return {"total": total, "counts": counts}

    def merged(self, states: Iterable[State]) -> State:
        found: State = {}
        for state in states:
            if not found:
                found = state
                continue
            found["total"] = torch.logaddexp(found["total"], state["total"])
            found["counts"] += state["counts"]
        return found
