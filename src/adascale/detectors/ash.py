"""ASH: most activations removed, the rest kept (P), levelled (B) or scaled (S)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adascale.core.types import Outputs
from adascale.detectors.base import Space, warn_if_signed
from adascale.detectors.parameters import percent
from adascale.detectors.shaping import Rectified
from adascale.maths import traced
from adascale.maths.activations import activation_scale, descending, first_ties, fixed_ratio, keep_count


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
        features = outputs.features.double()
        if bool(self.rectified_):
            features = features.clamp_min(0)
        warn_if_signed(f"ASH ({self.name})", features)
        ranked, order = descending(features)
        keep = int(keep_count(features.shape[1], self.percentile))
        kept = self._kept(ranked, keep)
        return self.head_(torch.zeros_like(features).scatter(1, order[:, :keep], kept))

    def formula_logits(self, outputs: Outputs) -> Tensor:
        features = outputs.features.double()
        if bool(self.rectified_):
            features = features.clamp_min(0)
        ranked = traced.ranked(features)
        keep = int(keep_count(features.shape[1], self.percentile))
        least = ranked[:, keep - 1 : keep]
        kept = first_ties(features > least, features == least, keep)
        return self.head_(torch.where(kept, self._shaped(features, ranked, keep), 0.0))

    def _shaped(self, features: Tensor, ranked: Tensor, keep: int) -> Tensor:
        """The new values of the activations, of which the ``keep`` largest count; ``ranked``: from large to small."""
        return features

    def _kept(self, ranked: Tensor, keep: int) -> Tensor:
        """The new values of the ``keep`` largest activations; ``ranked``: all, from large to small."""
        return ranked[:, :keep]


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

    def _kept(self, ranked: Tensor, keep: int) -> Tensor:
        return (ranked.sum(1, keepdim=True) / keep).expand(-1, keep)

    def _shaped(self, features: Tensor, ranked: Tensor, keep: int) -> Tensor:
        return features.sum(1, keepdim=True) / keep


@dataclass
class ASH_S(ASH):
    """ASH-S: the kept activations are scaled by ``exp(s1 / s2)``. ``S = -E(W a~ + b)``, see `ASH`."""

    name = "ash_s"
    summary = "only the largest activations, scaled"

    def _kept(self, ranked: Tensor, keep: int) -> Tensor:
        ratio = fixed_ratio(ranked, self.percentile, relu=False)
        return ranked[:, :keep] * torch.from_numpy(activation_scale(ratio.numpy()))[:, None]

    def _shaped(self, features: Tensor, ranked: Tensor, keep: int) -> Tensor:
        ratio = traced.fixed_ratio(ranked, self.percentile, relu=False)
        return features * traced.activation_scale(ratio)[:, None]
