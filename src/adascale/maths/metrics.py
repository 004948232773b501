"""How well scores separate ID from OOD: exact, on ranks, in float64, ties handled. Higher score = more OOD."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adascale.core.errors import InputError


class Metrics(NamedTuple):
    """Shares between 0 and 1. The 95 % are those of ``evaluate``'s ``tpr``.

    fpr95: share of ID flagged where at least 95 % of the OOD is caught (OpenOOD, the AdaSCALE paper).
    fpr95_id: share of OOD accepted where at least 95 % of the ID is kept (ODIN, Energy, ReAct, ASH, LTS).
    aupr_in, aupr_out: area under the precision-recall curve (trapezoids), ID resp. OOD as the positive class.
    """

    auroc: float
    fpr95: float
    fpr95_id: float
    aupr_in: float
    aupr_out: float


def evaluate(id_scores: Tensor, ood_scores: Tensor, tpr: float = 0.95) -> Metrics:
    """All five figures of one ID set against one OOD set; both FPRs at ``tpr``.

    For example:

        >>> evaluate(torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([2.5, 4.0, 5.0, 6.0])).auroc
        0.9375
    """
    return Metrics(
        auroc(id_scores, ood_scores),
        fpr_at_tpr(id_scores, ood_scores, tpr),
        fpr_at_tpr(-_checked(ood_scores, "OOD"), -_checked(id_scores, "ID"), tpr),
        aupr(-_checked(ood_scores, "OOD"), -_checked(id_scores, "ID")),
        aupr(id_scores, ood_scores),
    )


def auroc(id_scores: Tensor, ood_scores: Tensor) -> float:
    """The probability that an OOD sample scores above an ID sample; a tie counts one half.

    For example:

        >>> auroc(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
        0.875
    """
    negative, positive = _checked(id_scores, "ID").sort().values, _checked(ood_scores, "OOD")
    below = torch.searchsorted(negative, positive, right=False)
    at_most = torch.searchsorted(negative, positive, right=True)
    wins = int(below.sum()) + int(at_most.sum())  # twice the number, so that it stays an exact integer
    return wins / (2 * len(negative) * len(positive))


def fpr_at_tpr(id_scores: Tensor, ood_scores: Tensor, tpr: float = 0.95) -> float:
    """The smallest share of ID scores at or above a threshold that at least ``tpr`` of the OOD scores reach.

    For example:

        >>> fpr_at_tpr(torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([2.5, 4.0, 5.0, 6.0]))
        0.25
    """
    negative, positive = _checked(id_scores, "ID"), _checked(ood_scores, "OOD").sort(descending=True).values
    return int((negative >= positive[_needed(len(positive), tpr) - 1]).sum()) / len(negative)


def aupr(id_scores: Tensor, ood_scores: Tensor) -> float:
    """Area under precision against recall, OOD as positive, trapezoids between the distinct thresholds.

    For example:

        >>> aupr(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 3.0]))
        1.0
    """
    negative, positive = _checked(id_scores, "ID"), _checked(ood_scores, "OOD")
    thresholds = torch.unique(torch.cat([negative, positive])).flip(0)
    caught = _at_or_above(positive, thresholds)
    precision = caught / (caught + _at_or_above(negative, thresholds))
    recall = caught / len(positive)
    start = torch.zeros(1, dtype=torch.float64)
    recall, precision = torch.cat([start, recall]), torch.cat([start + 1, precision])
    return float(torch.trapezoid(precision, recall))


def bootstrap(
    id_scores: Tensor,
    ood_scores: Tensor,
    metric: str = "auroc",
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    tpr: float = 0.95,
) -> tuple[float, float]:
    """A percentile interval for one field of ``Metrics``: both sides are resampled with replacement.

    For example:

        >>> low, high = bootstrap(torch.arange(50.0), torch.arange(50.0) + 25)
        >>> 0 <= low < auroc(torch.arange(50.0), torch.arange(50.0) + 25) < high <= 1
        True
    """
    _check_resampling(metric, resamples, level)
    ranked = _Ranked(_checked(id_scores, "ID").numpy(), _checked(ood_scores, "OOD").numpy(), metric, tpr)
    sizes = [len(ranked.negative), len(ranked.positive)]
    return _interval(lambda drawn: ranked.shares(*drawn), sizes, resamples, level, seed)


def bootstrap_mean(
    parts: Sequence[Tensor],
    metric: str = "auroc",
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    tpr: float = 0.95,
) -> tuple[float, float]:
    """The same for the mean over several OOD sets. parts: the scores of the ID images, then those of each set.

    Every set is judged against the same resampled ID images, as in `paired_bootstrap`.

    For example:

        >>> low, high = bootstrap_mean([torch.arange(50.0), torch.arange(50.0) + 25, torch.arange(50.0) + 40])
    """
    _check_resampling(metric, resamples, level)
    known, *unknown = (_checked(part, "OOD" if place else "ID").numpy() for place, part in enumerate(parts))
    if not unknown:
        raise InputError("There are no OOD scores; give the ID scores, then those of at least one OOD set.")
    ranked = [_Ranked(known, part, metric, tpr) for part in unknown]

    def mean(drawn: Sequence[_Counts]) -> _Shares:
        shares = [one.shares(*_sides(one, drawn[0], own)) for one, own in zip(ranked, drawn[1:], strict=True)]
        return np.asarray(np.mean(shares, axis=0))

    return _interval(mean, [len(known), *map(len, unknown)], resamples, level, seed)


class Difference(NamedTuple):
    """One method's figure minus another's, with a bootstrap interval of the difference; shares, not percent."""

    value: float
    low: float
    high: float

    @property
    def beyond_chance(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    @property
    def interval(self) -> str:
        """The interval in percentage points, for people: ``-0.31 to +1.20``."""
        return " to ".join("0.00" if abs(100 * end) < 0.005 else f"{100 * end:+.2f}" for end in (self.low, self.high))


def paired_bootstrap(
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    metric: str = "auroc",
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    tpr: float = 0.95,
) -> Difference:
    """The difference ``first - second`` of a field of ``Metrics``, both methods on the same images.

    first, second: the scores of each method: those of the ID images, then those of each OOD set, image by image in the
    same order. With ``M(I, O)`` the figure of ID scores against those of one set, the value is the difference of the
    means over the J sets, ``d = 1/J sum_j [M_first(I, O_j) - M_second(I, O_j)]``. A resample draws as many ID images as
    there are, with replacement, and in the same way images of each set, independently; both methods are judged on these
    same images, and all sets against the same ID images. The interval is between the quantiles ``(1 - level) / 2`` and
    ``(1 + level) / 2`` of ``d`` over the resamples. What both methods find hard cancels, so that it is much narrower
    than the intervals of the two figures would suggest.

    For example:

        >>> known, unknown = torch.arange(50.0), torch.arange(50.0) + 25
        >>> paired_bootstrap([known, unknown], [known, unknown - 20]).beyond_chance
        True
    """
    _check_resampling(metric, resamples, level)
    (known, *unknown), (other_known, *other_unknown) = (
        [_checked(part, "OOD" if place else "ID").numpy() for place, part in enumerate(parts)]
        for parts in (first, second)
    )
    sizes = [len(known), *map(len, unknown)]
    if not unknown or sizes != [len(other_known), *map(len, other_unknown)]:
        raise InputError(
            f"{len(first)} and {len(second)} sets of scores; give both methods' scores of the same images: ID, then at "
            "least one OOD set."
        )
    pairs = [
        (_Ranked(known, mine, metric, tpr), _Ranked(other_known, theirs, metric, tpr))
        for mine, theirs in zip(unknown, other_unknown, strict=True)
    ]
    value = float(_mean_difference(pairs, [np.arange(size)[None] for size in sizes])[0])
    return Difference(value, *_interval(lambda drawn: _mean_difference(pairs, drawn), sizes, resamples, level, seed))


def _check_resampling(metric: str, resamples: int, level: float) -> None:
    if metric not in Metrics._fields:
        raise InputError(f"metric={metric!r}; choose one of {', '.join(Metrics._fields)}.")
    if resamples < 1 or not 0 < level < 1:
        raise InputError(f"resamples={resamples}, level={level}; give at least 1, and a share between 0 and 1.")


_CELLS = 1_000_000  # scores drawn at once, so that they fit in the processor's cache
_Counts = np.ndarray[Any, np.dtype[np.int64]]
_Shares = np.ndarray[Any, np.dtype[np.float64]]


def _interval(
    figure: Callable[[list[_Counts]], _Shares], sizes: Sequence[int], resamples: int, level: float, seed: int
) -> tuple[float, float]:
    """The percentile interval of a figure over resamples of sets of these sizes, drawn some at a time."""
    generator, rows, found = np.random.default_rng(seed), max(1, _CELLS // sum(sizes)), []
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        found.append(figure([_drawn(size, count, generator) for size in sizes]))
    low, high = np.quantile(np.concatenate(found), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _drawn(count: int, rows: int, generator: np.random.Generator) -> _Counts:
    """Indices of as many images as there are, drawn with replacement, one row for each resample."""
    drawn: _Counts = generator.integers(0, count, (rows, count), dtype=np.int32)
    return drawn


class _Ranked:
    """One ID and one OOD set by the ranks of their scores. Sides change places where the ID is the positive class."""

    def __init__(self, known: _Shares, unknown: _Shares, metric: str, tpr: float) -> None:
        self.metric, self.swapped = metric, metric in ("fpr95_id", "aupr_in")
        negative, positive = (-unknown, -known) if self.swapped else (known, unknown)
        values, ranks = np.unique(np.concatenate([negative, positive]), return_inverse=True)
        self.distinct, self.needed = len(values), _needed(len(positive), tpr)
        self.negative, self.positive = np.split(ranks, [len(negative)])

    def shares(self, negative: _Counts, positive: _Counts) -> _Shares:
        """The figure of each resample; negative, positive: the indices that were drawn of each side."""
        counts = self._counts(self.negative, negative), self._counts(self.positive, positive)
        return _RESAMPLED[self.metric](*counts, self.needed)

    def _counts(self, ranks: _Counts, drawn: _Counts) -> _Counts:
        """How often each distinct value was drawn, one row for each resample."""
        rows, places = len(drawn), ranks[drawn]
        places += np.arange(0, rows * self.distinct, self.distinct)[:, None]
        return np.bincount(places.ravel(), minlength=rows * self.distinct).reshape(rows, self.distinct)


def _mean_difference(pairs: Sequence[tuple[_Ranked, _Ranked]], drawn: Sequence[_Counts]) -> _Shares:
    """The mean over the sets of the differences; drawn: the indices of ID images, then of those of each set."""
    total: _Shares = np.zeros(len(drawn[0]))
    for (mine, theirs), own in zip(pairs, drawn[1:], strict=True):
        sides = _sides(mine, drawn[0], own)
        total += mine.shares(*sides) - theirs.shares(*sides)
    return total / len(pairs)


def _sides(ranked: _Ranked, known: _Counts, unknown: _Counts) -> tuple[_Counts, _Counts]:
    return (unknown, known) if ranked.swapped else (known, unknown)


def _auroc_of(negative: _Counts, positive: _Counts, needed: int) -> _Shares:
    below = negative.cumsum(1)
    wins = np.einsum("ij,ij->i", positive, 2 * below - negative)
    shares: _Shares = wins / (2 * below[:, -1] * positive.sum(1))
    return shares


def _fpr_of(negative: _Counts, positive: _Counts, needed: int) -> _Shares:
    threshold = (_from_above(positive) >= needed).argmax(1)
    flagged = np.take_along_axis(_from_above(negative), threshold[:, None], 1)[:, 0]
    shares: _Shares = flagged / negative.sum(1)
    return shares


def _aupr_of(negative: _Counts, positive: _Counts, needed: int) -> _Shares:
    caught = _from_above(positive)
    flagged = caught + _from_above(negative)
    precision = np.where(flagged > 0, caught / np.maximum(flagged, 1), 1)
    precision = np.concatenate([np.ones((len(caught), 1)), precision], 1)
    means, steps = (precision[:, 1:] + precision[:, :-1]) / 2, np.diff(caught, axis=1, prepend=0)
    shares: _Shares = (means * steps).sum(1) / positive.sum(1)
    return shares


_RESAMPLED: dict[str, Callable[[_Counts, _Counts, int], _Shares]] = {
    "auroc": _auroc_of,
    "fpr95": _fpr_of,
    "fpr95_id": _fpr_of,
    "aupr_in": _aupr_of,
    "aupr_out": _aupr_of,
}


def _from_above(counts: _Counts) -> _Counts:
    return counts[:, ::-1].cumsum(1)


def _needed(count: int, tpr: float) -> int:
    """The smallest number that is at least the share ``tpr`` of ``count``."""
    if not 0 < tpr <= 1:
        raise InputError(f"tpr={tpr}; it is a share above 0 and at most 1.")
    return next(k for k in range(max(1, int(tpr * count) - 1), count + 1) if k / count >= tpr)


def _at_or_above(scores: Tensor, thresholds: Tensor) -> Tensor:
    return (len(scores) - torch.searchsorted(scores.sort().values, thresholds, right=False)).double()


def _checked(scores: Tensor, side: str) -> Tensor:
    scores = torch.as_tensor(scores).detach().cpu().double().flatten()
    if not len(scores):
        raise InputError(f"There are no {side} scores; both sides need at least one.")
    if not scores.isfinite().all():
        bad = int((~scores.isfinite()).sum())
        raise InputError(f"{bad} of {len(scores)} {side} scores are NaN or infinite; they cannot be ranked.")
    return scores
