"""A grid of AdaSCALE's parameters on the same sets: each set is sorted once for all points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adascale.core.types import Head, Outputs, View
from adascale.detectors.rows import finite_rows, in_chunks, rowwise
from adascale.detectors.shaping import LOGIT_SCORES
from adascale.detectors.shift import combined_statistic
from adascale.maths.activations import descending, ecdf, keep_count, ratio_of, top_count

if TYPE_CHECKING:
    from adascale.detectors.adaptive import Adaptive

_CHUNK_LOGITS = 2**17


def sweep_group(
    methods: Mapping[int, Adaptive], reference: Outputs, head: Head, sets: Sequence[Outputs]
) -> Iterator[tuple[int, list[Tensor]]]:
    """The scores of these sets by methods that differ in percentiles, ``k1, k2, lam`` and statistic alone."""
    group = list(methods.values())
    learned, *ranked = [_Ranked(outputs, group) for outputs in (reference, *sets)]
    shares: dict[tuple[Any, ...], list[Tensor]] = {}
    for i, method in methods.items():
        key = (method.k1, method.k2, method.lam, method.statistic)
        if key not in shares:
            sample = learned.statistic(method).sort().values
            shares[key] = [torch.from_numpy(ecdf(sample, part.statistic(method))) for part in ranked]
        method.head_ = head
        yield i, [part.scores(method, share) for part, share in zip(ranked, shares[key], strict=True)]


class _Ranked:
    """One set, sorted once: prefix sums for every percentile, k1 and k2 that these methods ask for."""

    def __init__(self, outputs: Outputs, methods: Sequence[Adaptive]) -> None:
        size = outputs.features.shape[1]
        self.size, self.logits, views = size, outputs.logits, methods[0].views
        self.k1 = sorted({top_count(size, method.k1) for method in methods})
        self.k2 = sorted({top_count(size, method.k2) for method in methods})
        lows, highs = zip(*(pair for method in methods for pair in method.pairs), strict=True)
        self.least, keep = keep_count(size, [max(highs), min(lows)]).tolist()
        # Few distinct k against many points: then every k is scored once, and the points look their scores up.
        self.looked_up = len(methods) > keep - self.least + 1
        self._tables: dict[str, Tensor] = {}
        self.finite = rowwise(outputs, lambda chunk: finite_rows(chunk, views), torch.bool)
        parts = [self._sums(chunk, views, keep) for chunk in in_chunks(outputs)]
        self.mass, self.total, self.top, self.shift, self.perturbed = map(torch.cat, zip(*parts, strict=True))

    def _sums(self, outputs: Outputs, views: Sequence[View], keep: int) -> tuple[Tensor, ...]:
        ranked, order = descending(outputs.features.nan_to_num(0, 0, 0))
        mass = ranked.clamp_min(0).double().cumsum(1)
        strongest = ranked[:, : max(self.k1[-1], self.k2[-1])].double()
        moved = outputs.views[views[0]].gather(1, order[:, : strongest.shape[1]]).double() if views else strongest
        return (
            mass[:, :keep].clone(),
            mass[:, -1].clone(),
            _columns(strongest, self.k2),
            _columns((moved - strongest).abs(), self.k1),
            _columns(moved.clamp_min(0), self.k2),
        )

    def statistic(self, method: Adaptive) -> Tensor:
        k1, k2 = self.k1.index(top_count(self.size, method.k1)), self.k2.index(top_count(self.size, method.k2))
        return combined_statistic(
            method.statistic,
            method.lam,
            lambda: self.shift[:, k1],
            lambda: self.perturbed[:, k2],
            lambda: self.top[:, k2],
        )

    def scores(self, method: Adaptive, share: Tensor) -> Tensor:
        if self.looked_up and len(method.pairs) == 1:
            keep = torch.from_numpy(keep_count(self.size, method.percentile_at(share)))
            scores = self._table(method).gather(1, keep[:, None] - self.least).squeeze(1)
        else:
            scores = self._score(method, method.ratio_at(share, self._ratio_above))
        return torch.where(self.finite, scores, torch.inf)

    def _ratio_above(self, percentile: Tensor) -> Tensor:
        return ratio_of(self.mass, self.total, torch.from_numpy(keep_count(self.size, percentile)))

    def _score(self, method: Adaptive, ratio: Tensor) -> Tensor:
        score = LOGIT_SCORES[method.logit_score]
        rows = max(64, _CHUNK_LOGITS // self.logits.shape[1])
        scores = torch.empty(len(ratio), dtype=torch.float64)
        for start in range(0, len(ratio), rows):
            part = slice(start, start + rows)
            scores[part] = score(method.scaled_logits(self.logits[part], ratio[part].numpy()))
        return scores

    def _table(self, method: Adaptive) -> Tensor:
        """The scores (N, K) at each count of kept entries."""
        if method.logit_score not in self._tables:
            counts = range(self.least, self.mass.shape[1] + 1)
            ratios = (ratio_of(self.mass, self.total, torch.tensor([count])) for count in counts)
            columns = [self._score(method, ratio) for ratio in ratios]
            self._tables[method.logit_score] = torch.stack(columns, 1)
        return self._tables[method.logit_score]


def _columns(values: Tensor, counts: Sequence[int]) -> Tensor:
    """The sums of the first ``count`` entries of each row, for each of the counts."""
    return values[:, : counts[-1]].cumsum(1)[:, [count - 1 for count in counts]]
