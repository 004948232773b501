"""A function over many items by workers, like the built-in ``map``: the passes of a fit over activations on disk."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from adascale.cluster.executor import Executor, Outcome
from adascale.cluster.tasks import Held

_AHEAD = 2  # items for each worker whose results may wait for their turn


@dataclass(frozen=True)
class Apply:
    """The function on one item. It and the result travel as bytes: tensors would take shared memory on their way."""

    function: bytes
    index: int
    item: Any

    @property
    def name(self) -> str:
        return f"item {self.index}"

    def run(self, held: Held) -> bytes:
        return pickle.dumps(pickle.loads(self.function)(self.item))


def mapped(executor: Executor, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """The results in the order of the items; no more of them are in memory than two for each worker.

    What workers cannot do, such as a method of a file that they have not loaded, is done here.
    """
    try:
        sent = pickle.dumps(function)
    except (AttributeError, TypeError, pickle.PicklingError):
        yield from map(function, items)
        return
    size = _AHEAD * executor.workers
    for start in range(0, len(items), size):
        some = items[start : start + size]
        found: dict[int, Outcome] = {}
        for outcome in executor.run(Apply(sent, i, item) for i, item in enumerate(some)):
            assert isinstance(outcome.task, Apply)
            found[outcome.task.index] = outcome
        for i, item in enumerate(some):
            done = found.pop(i)
            yield function(item) if done.error else pickle.loads(done.value)
