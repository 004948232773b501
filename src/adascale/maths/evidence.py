"""Evidence: what a score is worth, on a scale that all methods share.

The scores of two methods cannot be added: they have other units. Their *evidence* can be: minus the logarithm of the
share of in-distribution images that score as high. Sums of it are Fisher's way to combine tests (R. A. Fisher,
"Statistical methods for research workers", 1925).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adascale.maths.traced import interpolated

_TAIL = 0.1  # the largest scores that set the slope beyond them, as a share of all
_FEWEST = 5  # and at least this many, where there are as many
_SHRINK = 1 / 3  # the share that is taken away from the correlations between members


@dataclass(frozen=True, eq=False)
class Evidence:
    """A continuous, strictly increasing map from the scores of one method to evidence, from m reference scores.

    Between the reference scores ``r`` the evidence is interpolated through ``e(r) = -log((1 + #{> r}) / (m + 1))``,
    which belongs to the conformal p-value of a score just above ``r``. That step function is the same for all scores
    beyond the sample, so the strongest OOD images would be tied. From the ``k`` largest scores on (a tenth, at least 5)
    the line ``e(s) = e(u) + (s - u) / mean excess over u`` continues it, ``u`` the largest score below them: an
    exponential tail, the generalised Pareto tail of shape 0. Another shape would have to be estimated from these few
    scores, and a negative one ends at a finite score, beyond which the evidence would be infinite. Below the smallest
    score the evidence falls to 0 exponentially.

    knots, levels: ascending reference scores up to ``u`` and their evidence. slopes: below the first and beyond the
    last of them. All are float64.
    """

    knots: Tensor
    levels: Tensor
    slopes: Tensor

    @classmethod
    def of(cls, scores: Tensor) -> Evidence:
        """The map that these reference scores set; infinite ones count as larger than all others."""
        ranked = scores.double().sort().values
        m = len(ranked)
        known = ranked[ranked.isfinite()]
        if not len(known):
            known = torch.zeros(1, dtype=torch.float64)
        tail = min(max(_FEWEST, math.ceil(_TAIL * m)), len(known) - 1)
        body = torch.unique(known[: len(known) - tail])  # equal scores are one knot
        above = m - torch.searchsorted(ranked, body, right=True)
        levels = -torch.log((1 + above).double() / (m + 1))
        # Scores that do not differ say nothing about a slope: then the unit is their size.
        unit = 1e-6 * known.abs().amax().clamp_min(1e-6)
        excess = (known[known > body[-1]] - body[-1]).mean() if (known > body[-1]).any() else unit
        spread = (body[-1] - body[0]).clamp_min(unit)
        return cls(body, levels, torch.stack([1 / spread, 1 / torch.as_tensor(excess).clamp_min(unit)]))

    def __call__(self, scores: Tensor) -> Tensor:
        """The evidence (N,) of these scores, float64: at least 0, and finite for finite scores."""
        values, knots, levels = scores.double().numpy(), self.knots.numpy(), self.levels.numpy()
        low, high = self.slopes.tolist()
        evidence = np.interp(values, knots, levels)
        beyond = np.maximum(values - knots[-1], 0.0) * high
        below = np.minimum(values - knots[0], 0.0) * low
        return torch.from_numpy((evidence + beyond) * np.exp(below))

    def formula(self, scores: Tensor) -> Tensor:
        """The same as torch operations alone, which can be traced."""
        beyond = (scores - self.knots[-1]).clamp_min(0) * self.slopes[1]
        below = (scores - self.knots[0]).clamp_max(0) * self.slopes[0]
        return (interpolated(scores, self.knots, self.levels) + beyond) * below.exp()


def decorrelated(evidence: Tensor) -> Tensor:
    """Weights (K,) for the columns of ``evidence`` (m, K), which come from m ID images: at least 0, mean 1.

    Members that say the same thing twice should not count twice. If each member moved by the same number of its
    deviations on OOD images, the linear sum that tells them best would have the weights ``C^-1 1``, with ``C`` the
    correlations on ID images (Fisher's linear discriminant). The shifts are not known to be equal, and ``C`` is an
    estimate, so it is shrunk towards the identity, which stands for equal weights: by a third, or by ``K / m`` where
    that is more. Unshrunk, the weights can silence a member altogether. Negative weights, which shrinking makes rare,
    are set to 0, so that the sum stays increasing.
    """
    m, size = evidence.shape
    centred = evidence - evidence.mean(0)
    scaled = centred / centred.norm(dim=0).clamp_min(1e-300)
    shrink = min(1.0, max(_SHRINK, size / m))
    identity = torch.eye(size, dtype=torch.float64)
    correlation = (1 - shrink) * scaled.T @ scaled + shrink * identity
    correlation.fill_diagonal_(1.0)
    weights: Tensor = torch.linalg.solve(correlation, torch.ones(size, dtype=torch.float64)).clamp_min(0)
    found: Tensor = weights * size / weights.sum()
    return found
