"""AdaSCALE: a percentile for every sample, from how far its strongest activations move."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from torch import Tensor

from adascale.detectors.base import Detector, FitsOn, check_number, check_percent, rowwise
from adascale.detectors.shaping import Shaping
from adascale.errors import InputError
from adascale.stats import descending, ecdf, mass_ratio, scaled_activation_logits, top_count
from adascale.types import Head, Outputs, Pixels, View

Statistic = Literal["q_prime", "q", "c_o", "top", "q_top"]


def activation_shift(features: Tensor, perturbed: Tensor, strongest: Tensor) -> Tensor:
    """``Q``: the sum of ``|a_eps - a|`` over the given indices (N, k1), the strongest of ``a``."""
    return (perturbed.gather(1, strongest).double() - features.gather(1, strongest).double()).abs().sum(1)


def perturbed_mass(perturbed: Tensor, strongest: Tensor) -> Tensor:
    """``C_o``: the sum of ``ReLU(a_eps)`` over the given indices (N, k2), the strongest of ``a``."""
    return perturbed.gather(1, strongest).clamp_min(0).double().sum(1)


@dataclass
class Adaptive(Shaping):
    """What the AdaSCALE variants share (Regmi, "AdaSCALE: adaptive scaling for OOD detection").

    With ``i1``, ``i2`` the indices of the ``k1`` % and ``k2`` % largest entries of ``a`` (unperturbed)::

        Q  = sum over i1 of |a_eps - a|        C_o = sum over i2 of ReLU(a_eps)        Q' = lam Q + C_o
        p  = p_min + (1 - F(Q')) (p_max - p_min)       F: share of ID samples with a statistic <= this one
        r  = sum(ReLU(a)) / (sum of the k largest of ReLU(a)),  k the entries above p

    ``lam`` is the paper's lambda, ``fraction`` its ``o``, ``epsilon`` the step. ``statistic`` selects an ablation in
    the place of ``Q'`` (``q_prime``): ``q`` = Q, ``c_o`` = C_o, ``top`` = sum of the k2 % largest of ``a``,
    ``q_top`` = lam Q + that sum. Fitted on a few ID samples without labels (10 suffice). The published code computes
    Q' differently for fitting and for scoring; here one function serves both. Where k % of D is less than one entry,
    one is taken (the reference takes none).
    """

    fits_on: ClassVar[FitsOn] = "val"
    signed_features: ClassVar[Literal["any", "relu", "as is"]] = "relu"
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "p_min": (60, 65, 70, 75, 80, 85, 90, 95, 99),
        "p_max": (60, 65, 70, 75, 80, 85, 90, 95, 99),
    }

    p_min: float = 60
    p_max: float = 85
    k1: float = 1
    k2: float = 5
    lam: float = 10
    pixels: Pixels = "trivial"
    fraction: float = 0.05
    epsilon: float = 0.5
    seed: int = 0
    statistic: Statistic = "q_prime"

    def _check_parameters(self) -> None:
        check_percent("p_min", self.p_min)
        check_percent("p_max", self.p_max)
        if self.p_min > self.p_max:
            raise InputError(f"p_min={self.p_min} is above p_max={self.p_max}; it must not be.")
        check_percent("k1", self.k1)
        check_percent("k2", self.k2)
        check_number("lam", self.lam)
        if self.statistic not in get_args(Statistic):
            raise InputError(f"statistic={self.statistic!r}; choose one of {', '.join(get_args(Statistic))}.")
        _ = self.view  # validates pixels and fraction

    @property
    def view(self) -> View:
        return View(self.pixels, self.fraction, self.epsilon, self.seed)

    @property
    def views(self) -> tuple[View, ...]:
        return (self.view,) if self.statistic != "top" else ()

    def shift_statistic(self, outputs: Outputs) -> Tensor:
        """The statistic that sets the percentile, for fitting and for scoring alike: ``Q'`` or its ablation."""
        return self._statistic(outputs, descending(outputs.features)[1])

    def percentiles(self, outputs: Outputs) -> Tensor:
        """``p`` for each sample."""
        return self._percentiles(self.shift_statistic(outputs))

    def ratios(self, outputs: Outputs) -> Tensor:
        """``r`` for each sample."""
        ranked, order = descending(outputs.features)
        return mass_ratio(ranked.clamp_min(0), self._percentiles(self._statistic(outputs, order)))

    def _fit(self, reference: Outputs, head: Head) -> None:
        self.reference_ = rowwise(reference, self.shift_statistic).sort().values

    def shaped_logits(self, outputs: Outputs) -> Tensor:
        return self.scaled_logits(outputs.logits, self.ratios(outputs))

    @abstractmethod
    def scaled_logits(self, logits: Tensor, ratio: Tensor) -> Tensor:
        """The logits after scaling with ``r``."""

    def _percentiles(self, statistic: Tensor) -> Tensor:
        return self.p_min + (1 - ecdf(self.reference_, statistic)) * (self.p_max - self.p_min)

    def _statistic(self, outputs: Outputs, order: Tensor) -> Tensor:
        features, size = outputs.features, outputs.features.shape[1]
        i1, i2 = order[:, : top_count(size, self.k1)], order[:, : top_count(size, self.k2)]
        if self.statistic == "top":
            return features.gather(1, i2).double().sum(1)
        perturbed = outputs.views[self.view]
        if self.statistic == "c_o":
            return perturbed_mass(perturbed, i2)
        shift = activation_shift(features, perturbed, i1)
        if self.statistic == "q":
            return shift
        if self.statistic == "q_top":
            return self.lam * shift + features.gather(1, i2).double().sum(1)
        return self.lam * shift + perturbed_mass(perturbed, i2)


@dataclass
class AdaSCALE_A(Adaptive):
    """AdaSCALE-A: the activations are scaled, ``S = -E(W (a e^r) + b)``. See `Adaptive` for ``r``."""

    name: ClassVar[str] = "adascale_a"
    summary: ClassVar[str] = "activations scaled by exp(r), percentile adapted to each sample"

    def scaled_logits(self, logits: Tensor, ratio: Tensor) -> Tensor:
        return scaled_activation_logits(logits, self.head_.offset, ratio)


@dataclass
class AdaSCALE_L(Adaptive):
    """AdaSCALE-L: the logits are scaled, ``S = -E(z r^2)``. See `Adaptive` for ``r``."""

    name: ClassVar[str] = "adascale_l"
    summary: ClassVar[str] = "logits scaled by r^2, percentile adapted to each sample"

    def scaled_logits(self, logits: Tensor, ratio: Tensor) -> Tensor:
        return logits.double() * ratio.square()[:, None]


@dataclass
class ActivationShift(Detector):
    """The ablation "Q without scaling" of the AdaSCALE paper: ``S = Q``. Fitted on nothing."""

    name: ClassVar[str] = "activation_shift"
    summary: ClassVar[str] = "ablation: AdaSCALE's Q itself as the score"
    cost: ClassVar[Literal["light", "product", "bank", "heavy"]] = "product"

    k1: float = 1
    pixels: Pixels = "trivial"
    fraction: float = 0.05
    epsilon: float = 0.5
    seed: int = 0

    def _check_parameters(self) -> None:
        check_percent("k1", self.k1)
        _ = self.view

    @property
    def view(self) -> View:
        return View(self.pixels, self.fraction, self.epsilon, self.seed)

    @property
    def views(self) -> tuple[View, ...]:
        return (self.view,)

    def _score(self, outputs: Outputs) -> Tensor:
        order = descending(outputs.features)[1]
        strongest = order[:, : top_count(order.shape[1], self.k1)]
        return activation_shift(outputs.features, outputs.views[self.view], strongest)
