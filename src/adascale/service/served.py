"""The detectors of a service by name, each with its lane, its last verdicts and its monitor."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adascale.service.feedback import FILE, Feedback
from adascale.service.judges import Judge
from adascale.service.lane import Answered, Item, Lane
from adascale.service.limits import Limits
from adascale.service.logs import LOG
from adascale.service.measures import Measures
from adascale.service.watch import Watch

_KEPT = ("prediction", "class", "score", "p_value", "is_ood", "early", "error")


class Served:
    """One detector: judge, lane, and what it has said lately (never the images)."""

    def __init__(self, name: str, judge: Judge, limits: Limits, measures: Measures, state: Path | None = None) -> None:
        self.name, self.judge, self.limits, self._measures = name, judge, limits, measures
        folder, known = None if state is None else state / name, judge.calibration
        self.watch = None if folder is None or known is None else Watch(folder, known, _classes(judge))
        self.feedback = Feedback(None if folder is None else folder / FILE, name)
        self.lane = Lane(name, judge, self._record, limits)
        self.seen = self.flagged = 0
        self._recent: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()
        measures.watch(name, lambda: self.lane.inside)

    def start(self) -> None:
        """Prove that the detector answers, which also warms it up, and begin to take images on."""
        self.lane.start(self._try)

    def _try(self) -> None:
        if self.judge.shape is not None:
            self.judge(torch.randn(1, *self.judge.shape, generator=torch.Generator().manual_seed(0)), "score")

    def stop(self) -> None:
        self.lane.stop()
        if self.watch is not None:
            self.watch.close()

    def save(self) -> None:
        """Keep the monitor's state."""
        if self.watch is not None:
            self.watch.save()

    def monitored(self) -> dict[str, Any]:
        """What the monitor says, and how many images were flagged; the gauges follow."""
        known = {"images_seen": self.seen, "flagged": self.flagged, "flag_rate": self.flag_rate()}
        if self.watch is None:
            return {"monitor": False, **known}
        found = self.watch.summary()
        for alarm in found["alarms"]:
            labels = self.name, alarm["name"], alarm["kind"]
            self._measures.evidence.labels(*labels).set(alarm["evidence"] / alarm["limit"])
            self._measures.alarm.labels(*labels).set(alarm["raised"])
        return {"monitor": True, **found, **known}

    def described(self) -> dict[str, Any]:
        return {"name": self.name, **self.judge.described(), "images_seen": self.seen}

    def recent(self, limit: int) -> list[dict[str, Any]]:
        """The last verdicts, newest first."""
        with self._lock:
            return list(islice(reversed(self._recent.values()), limit))

    def verdict(self, id: str) -> dict[str, Any] | None:
        with self._lock:
            return self._recent.get(id)

    def flag_rate(self) -> float | None:
        return self.flagged / self.seen if self.seen else None

    def unreadable(self, count: int = 1) -> None:
        self._measures.errors.labels(self.name, "unreadable").inc(count)

    def _record(self, items: Sequence[Item], answers: Sequence[Answered], seconds: float) -> None:
        """In the lane's thread, before the answers are sent."""
        flagged = sum(answer.row["is_ood"] for answer in answers)
        now = time.time()
        with self._lock:
            self.seen += len(items)
            self.flagged += flagged
            for item, answer in zip(items, answers, strict=True):
                kept = {name: answer.row[name] for name in _KEPT}
                self._recent[item.id] = {"id": item.id, "name": item.name, "time": now, **kept}
            while len(self._recent) > self.limits.remember:
                self._recent.popitem(last=False)
        self._monitor(items, answers)
        self._measures.images.labels(self.name).inc(len(items))
        self._measures.flagged.labels(self.name).inc(flagged)
        self._measures.batches.labels(self.name).observe(len(items))
        self._measures.passes.labels(self.name).observe(seconds)

    def _monitor(self, items: Sequence[Item], answers: Sequence[Answered]) -> None:
        """Decisions without scores say nothing to the monitor."""
        if self.watch is None or items[0].kind == "decide":
            return
        rows = [(answer.row, item.name or item.id) for item, answer in zip(items, answers, strict=True)]
        for title in self.watch.update((row["score"], row["prediction"], name) for row, name in rows):
            LOG.warning("alarm", extra={"fields": {"detector": self.name, "alarm": title}})


def _classes(judge: Judge) -> Tensor | int:
    """What the mix of classes is compared with: that of the calibration images, if it is known."""
    return judge.classes if judge.calibration_classes is None else judge.calibration_classes
