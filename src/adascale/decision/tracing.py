"""AdaSCALE on one image, number by number: from the pixels that were moved to the score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.types import Outputs, Pixels, View
from adascale.detectors.adaptive import Adaptive
from adascale.detectors.base import Detector
from adascale.detectors.rows import finite_rows
from adascale.extraction.perturb import moved_anyway, pixel_count
from adascale.maths.activations import descending, keep_count, top_count

_CHOSEN: Mapping[Pixels, str] = {
    "trivial": "those on which the predicted logit depends least",
    "salient": "those on which the predicted logit depends most",
    "random": "drawn once, the same in every image of this size",
    "all": "all of them",
    "largest": "the one on which the predicted logit depends most",
}
_STATISTICS = {
    "q_prime": ("Q'", "λ Q + C_o, which sets the percentile", "{lam:g} * {q:.6g} + {c_o:.6g}"),
    "q_top": ("Q'", "λ Q + the sum of the k2 strongest as they were", "{lam:g} * {q:.6g} + {top:.6g}"),
    "q": ("Q", "", ""),
    "c_o": ("C_o", "", ""),
}


@dataclass(frozen=True)
class Step:
    """One number: its symbol, what it is, how it was computed with the numbers before it, and its value."""

    symbol: str
    meaning: str
    formula: str
    value: float | None


@dataclass(frozen=True)
class Scaling:
    """A pair of percentiles, and the ratio that they lead to: ``r`` is the mean over the pairs (mostly there is one).

    percentile: ``p_min + (1 - F) (p_max - p_min)``. kept: ``k``, the activations above it. kept_sum: theirs.
    """

    p_min: float
    p_max: float
    percentile: float
    kept: int
    kept_sum: float
    ratio: float


@dataclass(frozen=True, eq=False)
class Trace:
    """What AdaSCALE measured on one image. The symbols are those of the paper; see `Adaptive`.

    method: the variant that was traced. mask: the channel values that were moved (C, H, W); None if nobody kept it.
    values, of: how many, and of how many. activations, perturbed: ``a`` and ``a_eps`` (D,), both in the order of ``a``
    from its largest entry; the first ``k1`` make ``q``, the first ``k2`` make ``c_o``. statistic: ``Q'`` or another.
    reference: the same of the images that it was fitted on, ascending. rank: how many of these are at most as large.
    total: the sum of the positive activations. scale: ``e^r`` or ``r^2``. score: that of the method, which is minus
    ``scaled_energy`` unless it reads something else off the scaled logits (``logit_score``).
    """

    method: Adaptive
    mask: Tensor | None
    values: int
    of: int
    activations: Tensor
    perturbed: Tensor
    k1: int
    k2: int
    q: float
    c_o: float
    statistic: float
    reference: Tensor
    rank: int
    share: float
    percentile: float
    total: float
    scalings: tuple[Scaling, ...]
    ratio: float
    scale: float
    energy: float
    scaled_energy: float
    score: float

    @property
    def view(self) -> View:
        return self.method.view

    @property
    def usual(self) -> float:
        """The median of the reference."""
        return float(self.reference[(len(self.reference) - 1) // 2])

    @property
    def steps(self) -> tuple[Step, ...]:
        """Each number with the formula that gives it, from the pixels on."""
        return (*self._movement(), *self._scaled())

    def _movement(self) -> list[Step]:
        """From the pixels to the place among the reference images."""
        own, n = self.method, len(self.reference)
        name, meaning, formula = _STATISTICS[own.statistic]
        known = {"lam": own.lam, "q": self.q, "c_o": self.c_o, "top": float(self.activations[: self.k2].double().sum())}
        moved = f"{self.values:,} of {self.of:,} channel values are moved by ε: {_CHOSEN[own.view.pixels]}"
        strongest = f"how far the {self.k1} strongest of {len(self.activations):,} activations move ({own.k1:g} %)"
        after = f"what the {self.k2} strongest are after it ({own.k2:g} %)"
        steps = [
            Step("x_ε", moved, f"x + {own.view.step:g} " + ("* sign(g)" if own.view.needs_gradient else "* ±1"), None),
            Step("Q", strongest, f"sum of |a_ε - a| over {self.k1}", self.q),
            Step("C_o", after, f"sum of ReLU(a_ε) over {self.k2}", self.c_o),
        ]
        if own.statistic in ("q_prime", "q_top"):
            steps.append(Step(name, meaning, formula.format(**known), self.statistic))
        share = f"the share of the reference images whose {name} is at most as large"
        return [*steps, Step("F", share, f"{self.rank} / {n}", self.share)]

    def _scaled(self) -> list[Step]:
        """From there to the score."""
        own, alone = self.method, len(self.scalings) == 1
        steps = [self._scaling(one, alone) for one in self.scalings]
        if not alone:
            listed = ", ".join(f"{one.ratio:.6g}" for one in self.scalings)
            steps.append(Step("r", "the mean over the pairs of percentiles", f"mean of {listed}", self.ratio))
        on_activations = own.name == "adascale_a"
        letter, what = ("e^r", "activations") if on_activations else ("r²", "logits")
        factor = f"exp({self.ratio:.6g})" if on_activations else f"{self.ratio:.6g}²"
        by_energy = own.logit_score == "energy"
        score = f"-({self.scaled_energy:.6g})" if by_energy else f"{own.logit_score} of the scaled logits"
        return [
            *steps,
            Step(letter, f"the factor of the {what}", factor, self.scale),
            Step("E before", "the energy of the logits as they are", "log of the sum of exp(z)", self.energy),
            Step("E after", "the energy of the scaled logits", f"the same, {what} times {letter}", self.scaled_energy),
            Step(f"S({own.name})", f"the score of {own.name}", score, self.score),
        ]

    def _scaling(self, one: Scaling, alone: bool) -> Step:
        size = len(self.activations)
        percentile = f"{one.p_min:g} + (1 - {self.share:.4g}) * {one.p_max - one.p_min:g} = {one.percentile:.6g}"
        kept = f"k = {size} - round({size} * p / 100) = {one.kept}"
        return Step(
            "r" if alone else f"r({one.p_min:g}, {one.p_max:g})",
            "from the percentile p: the sum of the positive activations over that of the k strongest"
            if one is self.scalings[0]
            else "the same for another pair of percentiles",
            f"p = {percentile}; {kept}; {self.total:.6g} / {one.kept_sum:.6g}",
            one.ratio,
        )


def traces(method: Detector, images: Tensor, outputs: Outputs, moved: Mapping[View, Tensor]) -> list[Trace | None]:
    """Of the first AdaSCALE among the method's parts; None where there is none, or the image is not finite."""
    part = next((part for part in method.parts.values() if isinstance(part, Adaptive)), None)
    if part is None or part.view not in outputs.views:
        return [None] * len(outputs)
    always = moved_anyway(tuple(images.shape[1:]), part.view)
    masks = list(moved[part.view]) if part.view in moved else [always] * len(images)
    finite = finite_rows(outputs, (part.view,)).tolist()
    kept = [mask for mask, usable in zip(masks, finite, strict=True) if usable]
    rows = _measured(part, outputs if all(finite) else outputs[torch.tensor(finite)], kept, images[0].numel())
    return [next(rows) if usable else None for usable in finite]


def _measured(part: Adaptive, outputs: Outputs, masks: Sequence[Tensor | None], of: int) -> Iterator[Trace]:
    """The trace of each sample; all are finite. of: how many channel values an image has."""
    seen, size = part.diagnostics(outputs), outputs.features.shape[1]
    ranked, scores = descending(outputs.features)[0], part.score(outputs)
    scales = part.scale_of(seen["ratio"].numpy())
    names = ("q", "c_o", "share", "percentile", "ratio", "energy", "scaled_energy")
    for i, mask in enumerate(masks):
        strengths = ranked[i].double().clamp_min(0)
        numbers = {name: float(seen[name][i]) for name in names}
        every = of if part.view.pixels == "all" else pixel_count(of, part.fraction)
        yield Trace(
            method=part,
            mask=mask,
            values=every if mask is None else int(mask.sum()),
            of=of,
            activations=ranked[i],
            perturbed=seen["perturbed_by_rank"][i],
            k1=top_count(size, part.k1),
            k2=top_count(size, part.k2),
            statistic=float(seen["q_prime"][i]),
            reference=part.reference_,
            rank=round(numbers["share"] * len(part.reference_)),
            total=float(strengths.sum()),
            scalings=tuple(_scaling(low, high, numbers["share"], strengths) for low, high in part.pairs),
            scale=float(scales[i]),
            score=float(scores[i]),
            **numbers,
        )


def _scaling(p_min: float, p_max: float, share: float, strengths: Tensor) -> Scaling:
    """strengths: the positive activations, the largest first."""
    percentile = p_min + (1 - share) * (p_max - p_min)
    kept = int(keep_count(len(strengths), percentile))
    kept_sum, total = float(strengths[:kept].sum()), float(strengths.sum())
    return Scaling(p_min, p_max, percentile, kept, kept_sum, total / kept_sum if kept_sum else 1.0)
