"""Betting against uniform p-values: evidence that may be looked at after every image.

A player who bets the density ``f`` multiplies what he has by ``f(p_t)``. While the p-values are independent and
uniform, that is a fair game, and so are mixtures of players:

    M_t = mean over the players of prod_i f_i(p_i)          P(M ever reaches 1/d) <= d                      (Ville)
    R_t = mean over the players of (R_{t-1} + 1) f_t(p_t)   P(R_t reaches A for some t <= n) <= n/A,
                                                            mean time until R reaches A >= A    (Shiryaev, Roberts)

because ``M_t`` and ``R_t - t`` are martingales. Everything is in logarithms. All functions take p-values of any shape,
so that many streams can run side by side; the players are the last axis.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

EXPONENTS = np.arange(1, 20) / 20
# Parts of [0, 1] that a player of `Histograms` tells apart, and over how many p-values it remembers them.
PARTS = np.array([4, 8, 16, 32, 64] * 2)
MEMORY = np.array([np.inf] * 5 + [1000.0] * 5)
_START = 0.5  # added to every count (Krichevsky and Trofimov)
_LEAST = 2.0**-53  # smaller p-values count as this: differences of numbers are no finer


class Wagers:
    """What the players have. logs[0]: ``log prod f`` of each player; logs[1]: ``log R`` of each player."""

    def __init__(self, *shape: int) -> None:
        self.logs = np.stack([np.zeros(shape), np.full(shape, -np.inf)])

    def play(self, bets: np.ndarray) -> None:
        """bets: ``log f_t(p_t)`` of each player."""
        self.logs[1] = np.logaddexp(self.logs[1], 0.0)
        self.logs += bets

    def evidence(self) -> np.ndarray:
        """``log M_t`` and ``log R_t``, means over the players, once they have played."""
        most = self.logs.max(-1)
        return np.asarray(most + np.log(np.exp(self.logs - most[..., None]).mean(-1)))

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs to go on from here."""
        return {"logs": self.logs}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a `state`."""
        self.logs = state["logs"]


def power_bets(p: np.ndarray) -> np.ndarray:
    """``log f(p)`` for ``f(p) = e p^(e - 1)`` and every exponent e: each bets on small p-values, small e the most."""
    return np.asarray(np.log(EXPONENTS) + (EXPONENTS - 1) * np.log(np.maximum(p, _LEAST))[..., None])


def distances(p: np.ndarray, before: np.ndarray) -> np.ndarray:
    """How far p lies from the p-value before it, around a circle, from 0 to 1: independent and uniform if those are."""
    apart = np.mod(p - before, 1.0)
    return np.asarray(2 * np.minimum(apart, 1 - apart))


class Histograms:
    """Players who learn which parts of [0, 1] come up too often: ``f(p) = B (N_b + 1/2) / (N + B/2)`` for the part b of
    B equal parts that p lies in, from the counts N of earlier p-values (some players forget old ones exponentially).
    """

    def __init__(self, *shape: int) -> None:
        self.counts = np.zeros((*shape, len(PARTS), int(PARTS.max())))

    def bets(self, p: np.ndarray) -> np.ndarray:
        """``log f(p)`` of each player, who then learns from p."""
        part = np.minimum((np.asarray(p)[..., None] * PARTS).astype(np.int64), PARTS - 1)
        place = (*np.indices(part.shape, sparse=True), part)
        bets = np.log(PARTS * (self.counts[place] + _START) / (self.counts.sum(-1) + PARTS * _START))
        self.counts *= (1 - 1 / MEMORY)[:, None]
        self.counts[place] += 1
        return np.asarray(bets)

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs to go on from here."""
        return {"parts": self.counts}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a `state`."""
        self.counts = state["parts"]
