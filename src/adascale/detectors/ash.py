"""ASH: most activations removed, the rest kept (P), levelled (B) or scaled (S)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.parameters import percent
from adascale.detectors.shaping import Rectified
from adascale.detectors.traits import Space, warn_if_signed
from adascale.maths import traced
from adascale.maths.activations import keep_count, strongest
from adascale.maths.sparse import pays, sparse_product


@dataclass
class ASH(Rectified):
    """Djurisic et al., "Extremely simple activation shaping for out-of-distribution detection", ICLR 2023.

    The ``k`` largest activations (above ``percentile``) are kept; with ``s1`` the sum of all, ``s2`` that of the kept:
    P keeps their values, B sets each to ``s1 / k``, S multiplies them by ``exp(s1 / s2)``; the rest become 0.
    ``S = -E(W a~ + b)``. No images are needed to fit it. Of equal values at the cut, those with the lowest indices are
    kept. ``relu=True`` takes ``max(a, 0)`` first, and so does the default where `fit` sees a negative feature (see
    `Rectified`); ``relu=False`` is the definition. Rows without a positive activation have ``s1 / s2 = 1``.
    """

    search_space: ClassVar[Space] = {"percentile": (65, 70, 75, 80, 85, 90, 95)}
    signed_features = "as is"

    percentile: float = percent(90)

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        features = outputs.features.clamp_min(0) if self.rectifies else outputs.features
        warn_if_signed(f"ASH ({self.name})", features)
        size = features.shape[1]
        count = int(keep_count(size, self.percentile))
        kept = strongest(features, count)
        if not pays(count, size):
            return self.head_(self._shaped(features.double(), kept))
        places = torch.from_numpy(kept.numpy().ravel().nonzero()[0]).view(-1, count)
        chosen = self._new(features.flatten()[places].double(), features.sum(1, dtype=torch.float64))
        return sparse_product(chosen, places % size, self.head_.blocks).add_(self.head_.offset)

    def formula_logits(self, outputs: Outputs) -> Tensor:
        features = outputs.features.clamp_min(0) if self.rectifies else outputs.features
        kept = traced.largest(features, traced.ranked(features), int(keep_count(features.shape[1], self.percentile)))
        return self.head_(self._shaped(features.double(), kept))

    def _shaped(self, features: Tensor, kept: Tensor) -> Tensor:
        """The new activations; ``kept``: a mask of the ``k`` largest of each row."""
        return torch.where(kept, self._new(torch.where(kept, features, 0.0), features.sum(1)), 0.0)

    def _new(self, chosen: Tensor, total: Tensor) -> Tensor:
        """What becomes of the kept activations, given with or without zeros for the others. total: ``s1`` (N,)."""
        return chosen


@dataclass
class ASH_P(ASH):
    """ASH-P: the kept activations stay as they are. ``S = -E(W a~ + b)``, see `ASH`."""

    name = "ash_p"
    summary = "only the largest activations"


@dataclass
class ASH_B(ASH):
    """ASH-B: the kept activations share the sum of all equally. ``S = -E(W a~ + b)``, see `ASH`. The paper's "ASH"."""

    name = "ash_b"
    summary = "only the largest activations, made equal"

    def _new(self, chosen: Tensor, total: Tensor) -> Tensor:
        count = int(keep_count(self.head_.weight.shape[1], self.percentile))
        return (total / count)[:, None].expand(chosen.shape)


@dataclass
class ASH_S(ASH):
    """ASH-S: the kept activations are scaled by ``exp(s1 / s2)``. ``S = -E(W a~ + b)``, see `ASH`."""

    name = "ash_s"
    summary = "only the largest activations, scaled"

    def _new(self, chosen: Tensor, total: Tensor) -> Tensor:
        sums = chosen.sum(1)
        usable = (chosen.amax(1) > 0) & (sums != 0)
        ratio = torch.where(usable, total / torch.where(usable, sums, 1.0), 1.0)
        return chosen * traced.activation_scale(ratio)[:, None]
