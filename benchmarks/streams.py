"""Many simulated streams side by side: ranks among everything seen, bets and alarms, as `Monitor` has them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adascale.maths.martingales import EXPONENTS, PARTS, Histograms, Wagers, distances, power_bets


class Raised(NamedTuple):
    """For each stream the image, from 1 on, at which each alarm was raised first; 0 if never.

    ever, continuing: (streams, alarms) with the alarms unusual, typical, repeated.
    """

    ever: np.ndarray
    continuing: np.ndarray


class _Counts:
    """Counts of ranks in each stream, as Fenwick trees side by side: the number of ranks up to one, and one more."""

    def __init__(self, ranks: np.ndarray, size: int) -> None:
        streams = len(ranks)
        self.single = np.zeros((streams, size + 1), dtype=np.int64)
        np.add.at(self.single, (np.arange(streams)[:, None], ranks + 1), 1)
        sums = self.single.cumsum(1)
        places = np.arange(size + 1)
        self.tree = sums - np.take_along_axis(sums, np.broadcast_to(places & (places - 1), sums.shape), 1)
        self.rows, self.size = np.arange(streams), size

    def up_to(self, ranks: np.ndarray) -> np.ndarray:
        place, found = ranks + 1, np.zeros(len(ranks), dtype=np.int64)
        while place.any():  # tree[0] is 0
            found += self.tree[self.rows, place]
            place = place & (place - 1)
        return found

    def add(self, ranks: np.ndarray) -> None:
        self.single[self.rows, ranks + 1] += 1
        place = ranks + 1
        rows = self.rows
        while len(place):
            self.tree[rows, place] += 1
            place = place + (place & -place)
            inside = place <= self.size
            rows, place = rows[inside], place[inside]


def p_values(calibration: np.ndarray, scores: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """``p_t`` of each score (streams, images) among the calibration (streams, n) and the earlier scores."""
    n, together = calibration.shape[1], np.concatenate([calibration, scores], 1)
    ordered = np.sort(together, 1)
    ranks = np.stack([o.searchsorted(row) for o, row in zip(ordered, together, strict=True)])  # ties share a rank
    counts, found = _Counts(ranks[:, :n], together.shape[1]), np.empty(scores.shape)
    for t in range(scores.shape[1]):
        mine = ranks[:, n + t]
        above, equal = n + t - counts.up_to(mine), counts.single[counts.rows, mine + 1]
        found[:, t] = (above + draws[:, t] * (equal + 1)) / (n + t + 1)
        counts.add(mine)
    return found


def alarms(p: np.ndarray, delta: float, run_length: float, number: int = 4) -> Raised:
    """When the alarms about scores are raised. p: (streams, images). number: of alarms that share the promise."""
    streams, images = p.shape
    wagers, limits = Wagers(streams, 3, len(EXPONENTS)), np.log([[[number / delta]], [[number * run_length]]])
    raised = np.zeros((2, streams, 3), dtype=np.int64)
    for t in range(images):
        apart = distances(p[:, t], p[:, t - 1]) if t else np.ones(streams)
        bets = power_bets(np.stack([p[:, t], 1 - p[:, t], apart], 1))
        bets[:, 2] *= t > 0
        wagers.play(bets)
        raised[(raised == 0) & (wagers.evidence() >= limits)] = t + 1
    return Raised(*raised)


def class_alarms(p: np.ndarray, delta: float, run_length: float, number: int = 4) -> Raised:
    """The same for the alarm about classes. p: of the predicted classes."""
    streams, images = p.shape
    wagers, players = Wagers(streams, 1, len(PARTS)), Histograms(streams, 1)
    limits = np.log([[[number / delta]], [[number * run_length]]])
    raised = np.zeros((2, streams, 1), dtype=np.int64)
    for t in range(images):
        wagers.play(players.bets(p[:, t : t + 1]))
        raised[(raised == 0) & (wagers.evidence() >= limits)] = t + 1
    return Raised(*raised)
