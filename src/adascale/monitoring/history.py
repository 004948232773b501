"""The evidence over time, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

MOST = 1024  # points; when there are as many, every second one goes, and from then on only half as many come


class History:
    """Rows of numbers, each with the number of its image."""

    def __init__(self, width: int) -> None:
        self.images, self.rows = np.empty(0, dtype=np.int64), np.empty((0, width))
        self.step = 1
        self._pending = 0

    def add(self, image: int, row: np.ndarray) -> None:
        self._pending += 1
        if self._pending < self.step:
            return
        self._pending = 0
        self.images, self.rows = np.append(self.images, image), np.vstack([self.rows, row])
        if len(self.images) == MOST:
            self.images, self.rows, self.step = self.images[1::2], self.rows[1::2], 2 * self.step

    def state(self) -> dict[str, np.ndarray]:
        return {"images": self.images, "rows": self.rows, "steps": np.array([self.step, self._pending])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.images, self.rows = state["images"], state["rows"]
        self.step, self._pending = state["steps"].tolist()
