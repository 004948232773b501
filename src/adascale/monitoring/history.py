"""The evidence over time, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

MOST = 1024  # points; when there are as many, every second one goes, and from then on only half as many come


class History:
    """Rows of numbers, each with the number of its image."""

    def __init__(self, width: int) -> None:
        self._rows = np.empty((MOST, 1 + width))
        self._size, self._step, self._skipped = 0, 1, 0

    @property
    def images(self) -> list[int]:
        found: list[int] = self._rows[: self._size, 0].astype(np.int64).tolist()
        return found

    @property
    def rows(self) -> np.ndarray:
        return self._rows[: self._size, 1:]

    def add(self, image: int, row: Sequence[float]) -> None:
        self._skipped += 1
        if self._skipped < self._step:
            return
        self._rows[self._size, 0], self._rows[self._size, 1:] = image, row
        self._size, self._skipped = self._size + 1, 0
        if self._size == MOST:
            self._rows[: MOST // 2] = self._rows[1::2].copy()
            self._size, self._step = MOST // 2, 2 * self._step

    def state(self) -> dict[str, np.ndarray]:
        return {"rows": self._rows[: self._size], "steps": np.array([self._step, self._skipped])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._size = len(state["rows"])
        self._rows[: self._size] = state["rows"]
        self._step, self._skipped = state["steps"].tolist()
