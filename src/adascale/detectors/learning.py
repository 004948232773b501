"""A fit in passes over the samples: a state of each block of them, merged in order.

The samples are cut into blocks of 16,384, whatever the shards are that they come in, and each block is looked at by
itself. So a fit gives the same bits whether one process or many have looked at the blocks, and whether the samples were
in memory or on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from adascale.core.errors import InputError, NotFittedError
from adascale.core.progress import progress
from adascale.core.shards import Block, Read, Run, Shards
from adascale.core.types import Head, Outputs
from adascale.detectors.needs import NOT_FINITE, Needs
from adascale.detectors.statistics import Course, State, Statistic

if TYPE_CHECKING:
    from adascale.detectors.base import Detector

BLOCK_ROWS = 16_384


class Part(NamedTuple):
    """The state of one block, and how many usable samples it rests on."""

    rows: int
    state: State


@dataclass(frozen=True)
class Step:
    """One pass: what it takes from a block. It can be sent to another process."""

    needs: Needs
    statistic: Statistic

    def __call__(self, outputs: Outputs, start: int = 0) -> Part:
        usable = self.needs.usable(outputs)
        return Part(len(usable), self.statistic.of(usable, start))

    def of_block(self, given: tuple[Block, int]) -> Part:
        """The same for a block that is read first."""
        block, start = given
        return self(block.read(), start)


class Fitting:
    """A method while it learns. As long as there is a `step`, call `partial` for every block of the samples and
    `merge` with what it gave, in order; then `finish`.

    For example:

        >>> method, blocks = detectors.get("react")(), [reference[:12], reference[12:]]
        >>> fitting = method.fitting(head)
        >>> while fitting.step is not None:
        ...     fitting.merge([fitting.partial(*one) for one in zip(blocks, fitting.starts(blocks), strict=True)])
        >>> fitted = fitting.finish()
    """

    def __init__(self, method: Detector, head: Head, course: Course) -> None:
        self._method, self._head, self._course = method, head, course
        self._counts: list[int] | None = None  # usable samples of each block, known after the first pass
        self.step: Step | None = None
        self._next(None)

    def partial(self, outputs: Outputs, start: int = 0) -> Part:
        """What this pass takes from these samples. start: how many usable samples come before them (`starts`)."""
        return self._now()(outputs, start)

    def merge(self, parts: Iterable[Part]) -> None:
        """Join what `partial` gave for all blocks, in their order. That ends the pass, and may start another."""
        statistic, counts = self._now().statistic, []

        def states() -> Iterator[State]:
            for rows, state in parts:
                counts.append(rows)
                yield state

        merged = statistic.merged(states())
        if not sum(counts):
            raise InputError(NOT_FINITE) if counts else self._now().needs.none_given()
        self._counts = counts
        self._next(statistic.value(merged))

    def finish(self) -> Detector:
        """The fitted method."""
        if self.step is not None:
            raise NotFittedError(f"{self._method.name} needs another pass over the samples: partial and merge again.")
        self._method.head_ = self._head
        return self._method

    def starts(self, blocks: Sequence[object]) -> list[int]:
        """How many usable samples come before each of these blocks; 0 where that is not known yet."""
        if self._counts is None or len(self._counts) != len(blocks):
            return [0] * len(blocks)
        return [0, *accumulate(self._counts)][:-1]

    def _now(self) -> Step:
        if self.step is None:
            raise NotFittedError(f"{self._method.name} has seen all that it needs: call finish.")
        return self.step

    def _next(self, value: object) -> None:
        try:
            statistic = self._course.send(value)
        except StopIteration:
            self.step = None
            return
        self.step = Step(self._method.needs(self._head), statistic)


def fit_shards(
    method: Detector, shards: Sequence[Read], head: Head, *, rows: Sequence[int] | None = None, run: Run = map
) -> Detector:
    """Fit a method on samples that are read shard by shard; the result has the bits of ``fit`` on all of them joined.

    shards: functions that read one shard each, in order. rows: how many samples each has; if it is not given, every
    shard is read once more to count them. run: what runs the work, like the built-in ``map`` (see `Shards`).

    For example:

        >>> method = fit_shards(detectors.get("react")(), [lambda: reference[:12], lambda: reference[12:]], head)
    """
    given = Shards.counted(shards, run) if rows is None else Shards(shards, rows, run)
    return method.fit(readable(method, given), head)


def readable(method: Detector, reference: Outputs | Shards) -> Outputs | Shards:
    """The samples as ``method.fit`` takes them: in memory for a class from elsewhere that has a ``fit`` of its own."""
    if isinstance(reference, Outputs):
        return reference
    owner = next(cls for cls in type(method).__mro__ if "fit" in vars(cls))
    return reference if owner.__module__.partition(".")[0] == __name__.partition(".")[0] else reference.load()


def learn(fitting: Fitting, needs: Needs, reference: Outputs | Shards | None) -> None:
    """Take a fit through all of its passes over these samples."""
    if reference is None or not len(reference):
        raise needs.none_given()
    source = _Held(needs, reference) if isinstance(reference, Outputs) else _Read(needs, reference)
    while fitting.step is not None:
        fitting.merge(source.parts(fitting))


class _Held:
    """Samples in memory. Which of them are usable is looked at once."""

    def __init__(self, needs: Needs, outputs: Outputs) -> None:
        finite = needs.finite(outputs)
        self._outputs, self._finite = outputs, None if finite.all() else finite

    def parts(self, fitting: Fitting) -> Iterator[Part]:
        assert fitting.step is not None
        statistic, total, usable = fitting.step.statistic, len(self._outputs), 0
        size = BLOCK_ROWS if statistic.blocked else total
        for first in range(0, total, size):
            rows = slice(first, first + size)
            block = self._outputs if total <= size else self._outputs[rows]
            block = block if self._finite is None else block[self._finite[rows]]
            yield Part(len(block), statistic.of(block, usable))
            usable += len(block)


class _Read:
    """Samples that are read block by block, in each pass."""

    def __init__(self, needs: Needs, shards: Shards) -> None:
        self._name, self._shards, self._pass = needs.name, shards, 0
        self._blocks = shards.blocks(BLOCK_ROWS)

    def parts(self, fitting: Fitting) -> Iterator[Part]:
        assert fitting.step is not None
        self._pass += 1
        jobs = list(zip(self._blocks, fitting.starts(self._blocks), strict=True))
        found = self._shards.run(fitting.step.of_block, jobs)
        with progress(f"Fitting {self._name}, pass {self._pass}", len(self._shards)) as advance:
            for block, part in zip(self._blocks, found, strict=True):
                yield part
                advance(len(block))
