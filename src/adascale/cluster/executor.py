"""Tasks over workers: one way of handing them out, whoever the workers are."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, Protocol

from adascale.cluster.tasks import Reply, Task
from adascale.core.errors import AdascaleError, AdascaleWarning

TRIES = 3  # of one task: a task that ends three workers ends every worker


class WorkersError(AdascaleError, RuntimeError):
    """No worker can do the work."""


class Event(NamedTuple):
    """What a crew reports about a worker: it is ready, it replied to its task, or it was lost."""

    worker: int
    kind: Literal["ready", "reply", "lost"]
    reply: Reply = Reply()


class Crew(Protocol):
    """Workers: processes of this machine, or actors of Ray. A worker has a number and one task at a time."""

    size: int

    def hire(self) -> int:
        """Start a worker; an event says when it is ready."""

    def give(self, worker: int, task: Task) -> None: ...

    def wait(self) -> list[Event]:
        """Wait until there is something to report."""

    def close(self) -> None:
        """End all workers, whatever they are doing."""


class Outcome(NamedTuple):
    """A finished task. error: why it has no value; empty if it has one."""

    task: Task
    value: Any
    error: str


class Executor:
    """Hands out tasks to a crew, as a context. Workers are hired at the first task and kept until the end.

    A worker has one task at a time, and tasks are taken from the iterable when a worker is free, so memory bounds
    neither their number nor that of the results. The task of a lost worker goes to another one, and a new worker is
    hired in its place; one that cannot be placed is not waited for as long as others work.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._idle: deque[int] = deque()
        self._starting: set[int] = set()
        self._busy: dict[int, tuple[Task, int]] = {}  # with the number of the try
        self._queue: deque[tuple[Task, int]] = deque()
        self._stillborn, self.lost = 0, 0
        self._told: set[str] = set()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.close()

    @property
    def workers(self) -> int:
        return self._crew.size

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """The outcomes of all tasks, as they come. What holds for every task, such as a missing file, is raised."""
        waiting = iter(tasks)
        while self._hand_out(waiting):
            for event in self._crew.wait():
                yield from self._handled(event)

    def _hand_out(self, waiting: Iterator[Task]) -> bool:
        """Give every idle worker a task; False if there is nothing to wait for."""
        while True:
            if not self._queue and (task := next(waiting, None)) is not None:
                self._queue.append((task, 1))
            if not self._queue:
                return bool(self._busy)
            if not self._idle:
                self._hire()
                return True
            worker = self._idle.popleft()
            self._busy[worker] = self._queue.popleft()
            self._crew.give(worker, self._busy[worker][0])

    def _hire(self) -> None:
        while len(self._starting) + len(self._busy) < self._crew.size:
            self._starting.add(self._crew.hire())

    def _handled(self, event: Event) -> Iterator[Outcome]:
        worker, kind, reply = event
        if reply.fatal:
            raise WorkersError(reply.error)
        if kind == "lost":
            self._note_loss(worker, reply)
        if kind == "ready":
            self._starting.discard(worker)
            self._stillborn = 0
        if kind in ("ready", "reply"):
            self._idle.append(worker)
        if worker in self._busy:
            yield from self._finished(*self._busy.pop(worker), event)

    def _note_loss(self, worker: int, reply: Reply) -> None:
        self.lost += 1
        if worker in self._idle:
            self._idle.remove(worker)
        if worker in self._starting:
            self._starting.remove(worker)
            self._stillborn += 1
        if self._stillborn >= TRIES * self._crew.size:
            raise WorkersError(f"No worker could be started ({reply.error or 'each ended at once'}).")

    def _finished(self, task: Task, tries: int, event: Event) -> Iterator[Outcome]:
        """The outcome of a task, unless it is tried again."""
        reply = event.reply
        for note in reply.notes:
            if note not in self._told:
                self._told.add(note)
                warnings.warn(note, AdascaleWarning, stacklevel=2)
        error = f"its worker was lost {tries} times ({reply.error})" if event.kind == "lost" else reply.error
        if tries < TRIES and (reply.again or event.kind == "lost"):
            self._queue.append((task, tries + 1))
        else:
            yield Outcome(task, reply.value, error)
