"""Uniform random numbers as a function of a seed and an index: work that is resumed draws what it would have drawn."""

from __future__ import annotations

import numpy as np

_BLOCK = 1024
_OTHER = 1 << 64  # the keys of `shuffled` lie beyond those of `Draws`
LARGEST_SEED = _OTHER - 1


class Draws:
    """``draws[index]``: ``width`` independent numbers in (0, 1], the same at every call. No state needs to be saved."""

    def __init__(self, seed: int, width: int) -> None:
        self.seed, self.width = seed, width
        self._block, self._values = -1, np.empty(0)

    def __getitem__(self, index: int) -> tuple[float, ...]:
        block, place = divmod(index, _BLOCK)
        if block != self._block:
            generator = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, block]))
            self._block, self._values = block, 1.0 - generator.random((_BLOCK, self.width))
        return tuple(self._values[place].tolist())


def shuffled(seed: int, size: int) -> np.ndarray:
    """Further independent numbers in (0, 1], one for each of ``size`` things, which order them at random."""
    return np.asarray(1.0 - np.random.Generator(np.random.Philox(key=seed + _OTHER)).random(size))
