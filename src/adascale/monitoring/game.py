"""Players that bet on the same p-values, and the alarms that their gains raise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from adascale.maths.martingales import Wagers
from adascale.monitoring.alarms import KINDS, Alarm


class Game:
    """One row of players for each name; two alarms for each name, ``ever`` and ``continuing``."""

    def __init__(self, names: Sequence[str], players: int, limits: Mapping[str, float]) -> None:
        self.wagers = Wagers(len(names), players)
        self.alarms = [Alarm(name, kind, math.log(limits[kind])) for kind in KINDS for name in names]

    def evidence(self) -> np.ndarray:
        """The logarithm of the evidence of each alarm."""
        return np.concatenate([self.wagers.ever, self.wagers.continuing])

    def play(self, bets: np.ndarray, image: int, name: str | None) -> list[Alarm]:
        """Settle the bets (names, players) on an image; returns the alarms that it raised."""
        # the continuing kind starts anew with every image: R + 1 is what is bet
        before = np.concatenate([self.wagers.ever, np.logaddexp(self.wagers.continuing, 0.0)]).tolist()
        self.wagers.play(bets)
        now = self.evidence().tolist()
        return [a for a, new, old in zip(self.alarms, now, before, strict=True) if a.update(new, old, image, name)]
