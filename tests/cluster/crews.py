"""Workers of tests that need no process of their own."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

from adascale.cluster.executor import Event
from adascale.cluster.tasks import Held, Reply, Task, perform


class Here:
    """A worker that does its tasks here, after they were sent; ``before``: what happens first."""

    size = 1

    def __init__(self, before: Callable[[], Any] = lambda: None) -> None:
        self._events, self._held, self._before = deque[Event](), Held(), before

    def hire(self) -> int:
        self._events.append(Event(0, "ready"))
        return 0

    def give(self, worker: int, task: Task) -> None:
        sent = pickle.loads(pickle.dumps(task))
        self._before()
        self._events.append(Event(worker, "reply", self.done(sent)))

    def done(self, task: Any) -> Reply:
        return perform(task, self._held)

    def wait(self) -> list[Event]:
        return [self._events.popleft()]

    def close(self) -> None:
        pass


class Elsewhere(Here):
    """A worker whose disk is not the one here: it says that all is done, and nothing is seen of it."""

    def done(self, task: Any) -> Reply:
        return Reply(len(task.images))
