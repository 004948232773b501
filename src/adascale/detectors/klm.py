"""KL matching: divergence from the typical softmax of a class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.rows import in_chunks


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

    def _fit(self, reference: Outputs, head: Head) -> None:
        classes = reference.logits.shape[1]
        total = torch.full((classes, classes), -torch.inf, dtype=torch.float64)
        counts = torch.zeros(classes, dtype=torch.float64)
        for chunk in in_chunks(reference):
            log_p, predicted = chunk.logits.double().log_softmax(1), chunk.logits.argmax(1)
            counts += torch.bincount(predicted, minlength=classes)
            for c in torch.unique(predicted).tolist():  # in logarithms, so that no probability is lost to underflow
                total[c] = torch.logaddexp(total[c], log_p[predicted == c].logsumexp(0))
        seen = counts > 0
        self.log_means_ = total[seen] - counts[seen].log()[:, None]

    def _score(self, outputs: Outputs) -> Tensor:
        log_p = outputs.logits.double().log_softmax(1)
        p = log_p.exp()
        return ((p * log_p).sum(1, keepdim=True) - p @ self.log_means_.T).amin(1)
