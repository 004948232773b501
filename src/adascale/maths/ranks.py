"""p-values by rank among everything seen so far, in bounded memory.

For exchangeable scores ``s_1, ..., s_n`` (calibration) and ``s_{n+1}, s_{n+2}, ...``, the numbers

    p_t = (#{s_i > s_t} + U_t (#{s_i = s_t} + 1)) / (n + t)      over the n + t - 1 earlier scores, U_t uniform

are independent and uniform (Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005). p-values
from the calibration scores alone are uniform too, but not independent: all of them share the error of that set.

**Beyond ``capacity`` scores** only some of them are kept, and for each gap between neighbours the number of scores in
it. Let ``c_k`` be that of gap k. A new score in gap k gets ``p_t = (sum over j > k of (c_j + 1) + U_t (c_k + 1)) /
(n + t)``: as above, with its place within the gap drawn at random. Scores that equal a kept one are ordered against it
at random, by numbers V drawn once for each score.

The p-values stay independent and uniform, whatever the distribution. Scores with their V have no ties, so the place
of a new one among all earlier ones is uniform and independent of the order of the earlier ones; the gap is a coarse
look at this place, and it is hit with probability ``(c_k + 1) / (n + t)``. Which scores are kept depends on the scores
up to then only as a set, and given that set the earlier p-values are independent of all that follows. Only power is
lost: a p-value is blurred by the share of its gap. (Bins whose edges are themselves calibration scores, counted in the
bins, would not do: with one calibration score and bins up to it and above it, P(p_1 < 1/2) is 3/4.)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from adascale.maths.draws import shuffled

CAPACITY = 4096


class Ranks:
    """The scores seen so far, as far as ranks need them. Scores must not be NaN."""

    def __init__(self, scores: np.ndarray, seed: int, capacity: int = CAPACITY) -> None:
        self.kept = np.sort(np.asarray(scores, dtype=np.float64))
        self.places = np.empty(0)  # V of the kept scores, once there are gaps
        self.counts = np.empty(0, dtype=np.int64)  # of the gaps: one more than kept scores
        self.seed, self.capacity = seed, capacity
        if len(self.kept) > capacity:
            self._thin()

    @property
    def exact(self) -> bool:
        """Whether all scores are kept."""
        return not len(self.counts)

    def __len__(self) -> int:
        return len(self.kept) + int(self.counts.sum())

    def place(self, score: float, u: float, v: float) -> float:
        """The p-value of a score, which is then one of those seen. u, v: uniform random numbers of its own."""
        if self.exact:
            low, high = (int(self.kept.searchsorted(score, side)) for side in ("left", "right"))
            p = (len(self.kept) - high + u * (high - low + 1)) / (len(self.kept) + 1)
            self.kept = np.insert(self.kept, low, score)
            if len(self.kept) > self.capacity:
                self._thin()
            return p
        gap = self._gap(score, v)
        above = int(self.counts[gap + 1 :].sum()) + len(self.kept) - gap
        p = (above + u * (int(self.counts[gap]) + 1)) / (len(self) + 1)
        self.counts[gap] += 1
        return p

    def _gap(self, score: float, v: float) -> int:
        low, high = (int(self.kept.searchsorted(score, side)) for side in ("left", "right"))
        return low + int(self.places[low:high].searchsorted(v))

    def _thin(self) -> None:
        """Keep a quarter of the capacity, more densely at both ends: there the p-values matter most."""
        n = len(self.kept)
        places = shuffled(self.seed, n)
        order = np.lexsort((places, self.kept))
        share = np.sin(np.linspace(0, np.pi / 2, max(2, self.capacity // 4))) ** 2
        chosen = np.unique(np.rint((n - 1) * share).astype(np.int64))
        self.counts = np.diff(chosen, prepend=-1, append=n) - 1
        self.kept, self.places = self.kept[order][chosen], places[order][chosen]

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs to go on from here."""
        return {"kept": self.kept, "places": self.places, "counts": self.counts}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a `state`."""
        self.kept, self.places, self.counts = state["kept"], state["places"], state["counts"]


class ClassRanks:
    """The same for classes, which are numbers from 0 on: ``p_t`` ranks a class by its number among those seen so far.

    A class that comes more often than before makes p-values near its place in the order more frequent.
    """

    def __init__(self, classes: np.ndarray) -> None:
        self.counts = np.bincount(np.asarray(classes, dtype=np.int64), minlength=1)

    def place(self, prediction: int, u: float) -> float:
        """The p-value of a class, which is then one of those seen. u: a uniform random number of its own."""
        if prediction >= len(self.counts):
            self.counts = np.pad(self.counts, (0, prediction + 1 - len(self.counts)))
        above, equal = int(self.counts[prediction + 1 :].sum()), int(self.counts[prediction])
        p = (above + u * (equal + 1)) / (int(self.counts.sum()) + 1)
        self.counts[prediction] += 1
        return p

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs to go on from here."""
        return {"counts": self.counts}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a `state`."""
        self.counts = state["counts"]
