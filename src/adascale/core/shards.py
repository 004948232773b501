"""Outputs of many samples that are read part by part: what a fit takes that has no room for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from adascale.core.errors import InputError
from adascale.core.types import Outputs

Read = Callable[[], Outputs]
# Like the built-in map: the results in the order of the items, computed where and when it pleases.
Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True, eq=False)
class Block:
    """Successive samples that may lie in several shards: which of them, and from which row to which."""

    pieces: tuple[tuple[Read, int, int, int], ...]

    def read(self) -> Outputs:
        return Outputs.cat([_read(*piece) for piece in self.pieces])

    def __len__(self) -> int:
        return sum(stop - start for _, _, start, stop in self.pieces)


@dataclass(frozen=True, eq=False)
class Shards:
    """A set of samples in parts, in order. parts: functions that read one each; rows: how many samples each has.

    run: what runs the work on blocks of them: the built-in ``map`` by default; ``ThreadPoolExecutor(4).map`` and the
    like are others. Functions that are sent to other processes must be such as can be pickled.

    For example:

        >>> shards = Shards([lambda: reference[:12], lambda: reference[12:]], rows=[12, 8])
        >>> method = detectors.get("react")().fit(shards, head)
    """

    parts: Sequence[Read]
    rows: Sequence[int]
    run: Run = map

    def __post_init__(self) -> None:
        if len(self.parts) != len(self.rows) or any(count < 0 for count in self.rows):
            raise InputError(
                f"Shards got {len(self.parts)} parts and {len(self.rows)} counts of rows; give the count of each part."
            )

    @staticmethod
    def counted(parts: Sequence[Read], run: Run = map) -> Shards:
        """Shards whose sizes are not known: each is read once to count them."""
        return Shards(parts, list(run(_count, parts)), run)

    def __len__(self) -> int:
        return sum(self.rows)

    def blocks(self, size: int) -> list[Block]:
        """All samples in blocks of ``size``, the last with the rest. They do not depend on where the shards end."""
        ends = list(accumulate(self.rows))
        found: list[list[tuple[Read, int, int, int]]] = [[] for _ in range(0, len(self), size)]
        for part, count, end in zip(self.parts, self.rows, ends, strict=True):
            first = end - count
            for i in range(first // size, -(-end // size)):
                start, stop = max(first, i * size), min(end, (i + 1) * size)
                if start < stop:
                    found[i].append((part, count, start - first, stop - first))
        return [Block(tuple(pieces)) for pieces in found]

    def chunks(self, size: int) -> Iterator[Outputs]:
        """The samples, block by block."""
        return (block.read() for block in self.blocks(size))

    def load(self) -> Outputs:
        """All samples in memory."""
        return Outputs.cat([_read(part, count, 0, count) for part, count in zip(self.parts, self.rows, strict=True)])


def _read(part: Read, count: int, start: int, stop: int) -> Outputs:
    outputs = part()
    if len(outputs) != count:
        raise InputError(f"A shard has {len(outputs)} samples in place of {count}; it was changed, or counted wrongly.")
    return outputs if (start, stop) == (0, count) else outputs[start:stop]


def _count(part: Read) -> int:
    return len(part())
