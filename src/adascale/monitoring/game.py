"""Players that bet on the same p-values, and the alarms that their gains raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from adascale.maths.martingales import Wagers
from adascale.monitoring.alarms import KINDS, Alarm, Rise


class Game:
    """A row of players for each name, and two alarms for each name: ``ever`` and ``continuing``."""

    def __init__(self, names: Sequence[str], players: int, limits: Mapping[str, float]) -> None:
        self.wagers = Wagers(len(names), players)
        self.alarms = [Alarm.made(name, kind, limits[kind]) for kind in KINDS for name in names]
        self.rises = [Rise() for _ in names]

    def play(self, bets: np.ndarray, image: int, name: str | None) -> list[Alarm]:
        """Settle the bets (names, players) on an image; returns the alarms that it raised."""
        before = [alarm.log_evidence for alarm in self.alarms[len(self.rises) :]]
        self.wagers.play(bets)
        evidence = self.wagers.evidence()
        # R + 1 is what was bet, so this is what the image multiplied the evidence by
        gains = evidence[1] - np.logaddexp(before, 0.0)
        for rise, gain in zip(self.rises, gains.tolist(), strict=True):
            rise.add(gain, image, name)
        return [a for a, now in zip(self.alarms, evidence.ravel().tolist(), strict=True) if a.update(now, image)]

    def summary(self) -> list[dict[str, Any]]:
        return [alarm.summary(rise) for alarm, rise in zip(self.alarms, [*self.rises] * len(KINDS), strict=True)]

    def record(self) -> dict[str, Any]:
        """The alarms and how they came about, ready for JSON; what the players have is in ``wagers``."""
        return {"alarms": [asdict(one) for one in self.alarms], "rises": [asdict(one) for one in self.rises]}

    def restore(self, record: Mapping[str, Any]) -> None:
        self.alarms = [Alarm(**one) for one in record["alarms"]]
        self.rises = [Rise.restored(one) for one in record["rises"]]
