"""What AdaSCALE's variants share: a percentile for every sample, from how far its strongest activations move."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.shards import Shards
from adascale.core.types import Head, Outputs, Pixels, View, view_of
from adascale.detectors.parameters import number, percent
from adascale.detectors.rows import finite_rows, in_chunks
from adascale.detectors.shaping import Shaping
from adascale.detectors.shift import Statistic, Values, activation_shift, combined_statistic, perturbed_mass
from adascale.detectors.statistics import Course, Each
from adascale.detectors.sweeping import sweep_group
from adascale.detectors.traits import Space
from adascale.maths import traced
from adascale.maths.activations import (
    Floats,
    RankedRow,
    Ranking,
    descending,
    ecdf,
    energy,
    energy_of,
    top_count,
)
from adascale.maths.scales import energies_between


@dataclass
class Adaptive(Shaping):
    """What the AdaSCALE variants share (Regmi, "AdaSCALE: adaptive scaling for OOD detection").

    With ``i1``, ``i2`` the indices of the ``k1`` % and ``k2`` % largest entries of ``a`` (unperturbed)::

        Q  = sum over i1 of |a_eps - a|        C_o = sum over i2 of ReLU(a_eps)        Q' = lam Q + C_o
        p  = p_min + (1 - F(Q')) (p_max - p_min)       F: share of ID samples with a statistic <= this one
        r  = sum(ReLU(a)) / (sum of the k largest of ReLU(a)),  k the entries above p

    ``lam`` is the paper's lambda, ``fraction`` its ``o``, ``epsilon`` the step. ``statistic`` selects an ablation in
    the place of ``Q'`` (``q_prime``): ``q`` = Q, ``c_o`` = C_o, ``top`` = sum of the k2 % largest of ``a``,
    ``q_top`` = lam Q + that sum. A few ID samples without labels (10) suffice to fit it. The published code computes
    Q' differently for fitting and for scoring; here one function serves both. Where k % of D is less than one entry,
    one entry is taken (the reference takes none).

    more_pairs: further pairs ``p_min, p_max, p_min, p_max, ...`` (ours, for tuning). Then ``r`` is the mean of the
    ratios that ``p_min, p_max`` and they give, and ``p`` the mean of their percentiles.
    """

    fits_on = "val"
    passes = "2 forward, 1 backward"
    diagnosed = (
        *("q", "c_o", "q_prime", "share", "percentile", "ratio", "energy", "scaled_energy"),
        *("shift_by_rank", "perturbed_by_rank"),
    )
    tuned_by_default = True
    signed_features = "relu"
    search_space: ClassVar[Space] = {
        "p_min": (60, 65, 70, 75, 80, 85, 90, 95, 99),
        "p_max": (60, 65, 70, 75, 80, 85, 90, 95, 99),
    }

    p_min: float = percent(60)
    p_max: float = percent(85)
    k1: float = percent(1, above=0)
    k2: float = percent(5, above=0)
    lam: float = number(10, least=0)
    pixels: Pixels = "trivial"
    fraction: float = number(0.05, above=0, most=1, kind="a share")
    epsilon: float = 0.5
    seed: int = 0
    statistic: Statistic = "q_prime"
    more_pairs: tuple[float, ...] = ()

    def _check_parameters(self) -> None:
        if self.p_min > self.p_max:
            raise InputError(f"p_min={self.p_min} is above p_max={self.p_max}; it must not be.")
        flat = self.more_pairs
        if len(flat) % 2 or any(not 0 <= low <= high <= 100 for low, high in self.pairs):
            raise InputError(f"more_pairs={flat}; give p_min, p_max, p_min, p_max, ..., each from 0 to 100.")

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """Every pair ``p_min, p_max``."""
        return ((self.p_min, self.p_max), *zip(self.more_pairs[::2], self.more_pairs[1::2], strict=False))

    def averaged(self, points: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Points that differ in percentiles alone become the pairs that ``r`` is averaged over."""
        if len(points) == 1 or not set(points[0]) <= {"p_min", "p_max"}:
            return points[0]
        pairs = [(point.get("p_min", self.p_min), point.get("p_max", self.p_max)) for point in points[1:]]
        return {**points[0], "more_pairs": tuple(p for pair in pairs for p in pair)}

    def suited(self, features: int) -> Mapping[str, Any]:
        """``p_min = 60``, ``p_max = 60 + 25 min(1, D / 2048)``.

        The range ``p_max - p_min`` is the weight that the statistic has in the score. ``Q'`` is a sum over a fixed
        share of the D features, so its noise has a variance of the order of 1 / D, and the best weight of a noisy
        quantity is its signal over its variance (Fisher's linear discriminant): the range grows like D. The paper's 60
        and 85 belong to networks with about 2,000 features. With 64 features they give ``Q'``, which then rests on the
        strongest feature alone, 32 times the weight.
        """
        return {"p_min": 60.0, "p_max": round(60 + 25 * min(1.0, features / 2048), 1)}

    @property
    def view(self) -> View:
        return view_of(self.pixels, self.fraction, self.epsilon, self.seed)

    @property
    def views(self) -> tuple[View, ...]:
        return (self.view,) if self.statistic != "top" else ()

    def shift_statistic(self, outputs: Outputs) -> Tensor:
        """The statistic that sets the percentile, for fitting and for scoring alike: ``Q'`` or its ablation."""
        return torch.from_numpy(self._statistic(outputs, Ranking(outputs.features)))

    def percentiles(self, outputs: Outputs) -> Tensor:
        """``p`` for each sample."""
        return torch.from_numpy(self._percentiles(outputs, Ranking(outputs.features)))

    def ratios(self, outputs: Outputs) -> Tensor:
        """``r`` for each sample."""
        return torch.from_numpy(self._ratios(outputs))

    def diagnostics(self, outputs: Outputs) -> Mapping[str, Tensor]:
        """``Q``, ``C_o``, the statistic (``q_prime``), ``F`` (``share``), ``p``, ``r``, ``E(z)`` and that of the scaled
        logits (N,); ``|a_eps - a|`` and ``a_eps`` (N, D), each row in the order of ``a`` from its largest entry.
        Nothing where the outputs lack the view.
        """
        if self.view not in outputs.views:
            return {}
        ranking, seen = Ranking(outputs.features), outputs.views[self.view]
        statistic, ratio = self._statistic(outputs, ranking), self._ratios(outputs)
        share = ecdf(self.reference_, statistic)
        ranked, order = descending(outputs.features)
        perturbed = seen.gather(1, order)
        return {
            "q": torch.from_numpy(activation_shift(ranking, seen, self.k1)),
            "c_o": torch.from_numpy(perturbed_mass(ranking, seen, self.k2)),
            "q_prime": torch.from_numpy(statistic),
            "share": torch.from_numpy(share),
            "percentile": torch.from_numpy(self.percentile_at(share)),
            "ratio": torch.from_numpy(ratio),
            "energy": energy(outputs.logits),
            "scaled_energy": energy(self.scaled_logits(outputs.logits, ratio)),
            "shift_by_rank": (perturbed - ranked).abs(),
            "perturbed_by_rank": perturbed,
        }

    def _learn(self, head: Head) -> Course:
        found: Tensor = yield Each(replace(self).shift_statistic)
        self.reference_ = found.sort().values

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        return self.scaled_logits(outputs.logits, self._ratios(outputs))

    def _score(self, outputs: Outputs) -> Tensor:
        if len(outputs) > 1 or self.logit_score != "energy":
            return super()._score(outputs)
        # One sample alone: NumPy all the way, which starts faster than torch.
        scale = self.scale_of(self._ratios(outputs))
        logits = outputs.logits.numpy()[0].astype(np.float64)
        direction, offset = self.line(logits, self.head_.offset.numpy())
        return torch.from_numpy(np.array([-energy_of(scale * direction + offset)]))

    def bounds(self, outputs: Outputs) -> tuple[Tensor, Tensor] | None:
        """The least and the largest score over all percentiles from ``p_min`` to ``p_max``, from the clean pass alone.

        ``r`` grows with ``p``, and the scale with ``r``: see `energies_between`.
        """
        if not self.views or self.logit_score != "energy":
            return super().bounds(outputs)
        low, high = torch.empty(2, len(outputs), dtype=torch.float64)
        start = 0
        for chunk in in_chunks(outputs):
            rows = slice(start, start + len(chunk))
            low[rows], high[rows] = self._bounds(chunk)
            start += len(chunk)
        return low, high

    def _bounds(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        ranking = Ranking(outputs.features.nan_to_num(0, 0, 0))
        shares = np.array([1.0]), np.array([0.0])  # p_min and p_max, by the same rounding as in a score
        ends = [torch.from_numpy(self.scale_of(self.ratio_at(share, ranking.ratio_above))) for share in shares]
        low, high = self._between(ends, outputs.logits)
        # Rows that are not finite score +inf whatever their view is.
        finite = finite_rows(outputs, ())
        return torch.where(finite, low, torch.inf), torch.where(finite, high, torch.inf)

    def _between(self, ends: Sequence[Tensor], logits: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the largest score for scales between these two."""
        return energies_between(*self.line(logits.double(), self.head_.offset), ends)

    def formula_logits(self, outputs: Outputs) -> Tensor:
        descending = traced.ranked(outputs.features)
        share = traced.ecdf(self.reference_, self._traced_statistic(outputs, descending))
        ratio = self.ratio_at(share, lambda p: traced.ratio_above(descending, p))
        direction, offset = self.line(outputs.logits.double(), self.head_.offset)
        return self.traced_scale(ratio)[:, None] * direction + offset

    def _traced_statistic(self, outputs: Outputs, descending: Tensor) -> Tensor:
        a, perturbed = outputs.features, outputs.views[self.view] if self.views else outputs.features
        return combined_statistic(
            self.statistic,
            self.lam,
            lambda: traced.masked_sum((perturbed.double() - a).abs(), traced.strongest(a, descending, self.k1)),
            lambda: traced.masked_sum(perturbed.clamp_min(0), traced.strongest(a, descending, self.k2)),
            lambda: descending[:, : top_count(a.shape[1], self.k2)].double().sum(1),
        )

    def formula_bounds(self, outputs: Outputs) -> tuple[Tensor, Tensor] | None:
        if not self.views or self.logit_score != "energy":
            return super().formula_bounds(outputs)
        descending = traced.ranked(outputs.features)
        ends = [torch.full((1,), share, dtype=torch.float64) for share in (1.0, 0.0)]  # p_min and p_max
        ratios = [self.ratio_at(share, lambda p: traced.ratio_above(descending, p)) for share in ends]
        return self._between([self.traced_scale(ratio) for ratio in ratios], outputs.logits)

    @abstractmethod
    def traced_scale(self, ratio: Tensor) -> Tensor:
        """`scale_of` as a torch operation."""

    @abstractmethod
    def scale_of(self, ratio: Floats) -> Floats:
        """The scale ``s`` that ``r`` leads to; it grows with ``r``."""

    @abstractmethod
    def line(self, logits: Values, bias: Values) -> tuple[Values, Values]:
        """``z, c`` of the scaled logits ``s z + c``, float64."""

    def scaled_logits(self, logits: Tensor, ratio: Floats) -> Tensor:
        """The logits after scaling with ``r``."""
        direction, offset = self.line(logits.double(), self.head_.offset)
        return torch.from_numpy(self.scale_of(ratio))[:, None] * direction + offset

    def sweep(
        self,
        points: Sequence[Mapping[str, Any]],
        reference: Outputs | Shards | None,
        head: Head,
        sets: Sequence[Outputs],
        train: Outputs | Shards | None = None,
    ) -> Iterator[tuple[int, list[Tensor] | None]]:
        """One sort of each set serves every ``p_min, p_max, k1, k2, lam`` and statistic."""
        made = {i: method for i, point in enumerate(points) if (method := self._at(point)) is not None}
        yield from ((i, None) for i in range(len(points)) if i not in made)
        for views in dict.fromkeys(method.views for method in made.values()):
            group = {i: method for i, method in made.items() if method.views == views}
            yield from sweep_group(group, next(iter(group.values()))._usable(reference, head), head, sets)

    def percentile_at(self, share: Values) -> Values:
        """``p = p_min + (1 - F) (p_max - p_min)``; with several pairs the mean over them."""
        return self._mean_over_pairs(share, lambda p: p)

    def ratio_at(self, share: Values, ratio: Callable[[Values], Values]) -> Values:
        """``r`` where ``F`` is ``share``, from what gives ``r`` for a percentile; the mean over all pairs.

        Each part grows with ``p``, and so does a rounded sum of them: `bounds` holds for the mean.
        """
        return self._mean_over_pairs(share, ratio)

    def _mean_over_pairs(self, share: Values, of: Callable[[Values], Values]) -> Values:
        found = [of(low + (1 - share) * (high - low)) for low, high in self.pairs]
        total = found[0]
        for other in found[1:]:
            total = total + other
        return total / len(found) if len(found) > 1 else total

    def _ratios(self, outputs: Outputs) -> Floats:
        if len(outputs) == 1:
            return np.array([self._ratio_of_one(outputs)])
        ranking = Ranking(outputs.features)
        return self.ratio_at(ecdf(self.reference_, self._statistic(outputs, ranking)), ranking.ratio_above)

    def _ratio_of_one(self, outputs: Outputs) -> float:
        """``r`` of a single sample: the same steps with numbers in the place of arrays."""
        row = RankedRow(outputs.features)
        perturbed = outputs.views[self.view].numpy()[0] if self.views else row.values

        def moved(percent: float) -> tuple[Floats, Floats]:
            places = row.strongest(top_count(row.size, percent))
            return perturbed[places], row.values[places]

        statistic = combined_statistic(
            self.statistic,
            self.lam,
            lambda: float(np.abs(np.subtract(*moved(self.k1), dtype=np.float64)).sum()),
            lambda: float(np.maximum(moved(self.k2)[0], 0).sum(dtype=np.float64)),
            lambda: float(row.ascending[-top_count(row.size, self.k2) :].sum(dtype=np.float64)),
        )
        known = self.reference_.numpy()
        share = float(known.searchsorted(statistic, side="right")) / len(known)
        return self.ratio_at(share, lambda p: row.ratio(max(1, row.size - round(row.size * p / 100))))

    def _percentiles(self, outputs: Outputs, ranking: Ranking) -> Floats:
        return self.percentile_at(ecdf(self.reference_, self._statistic(outputs, ranking)))

    def _statistic(self, outputs: Outputs, ranking: Ranking) -> Floats:
        return combined_statistic(
            self.statistic,
            self.lam,
            lambda: activation_shift(ranking, outputs.views[self.view], self.k1),
            lambda: perturbed_mass(ranking, outputs.views[self.view], self.k2),
            lambda: ranking.ascending[:, -top_count(ranking.size, self.k2) :].sum(1, dtype=np.float64),
        )
