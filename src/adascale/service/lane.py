"""One detector's way through the service: images are taken on, decoded, judged in batches and answered.

    admitted (bounded) -> decoded by the pool -> waiting -> one batch, in the lane's own thread -> answered

A slot is given back when its image leaves this way, not when its client gives up, so work never piles up behind it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from adascale.core.errors import AdascaleError
from adascale.service.limits import Limits
from adascale.service.logs import LOG
from adascale.service.refusals import busy

Kind = Literal["score", "decide", "explain"]
_PATIENCE = 0.5  # the share of the deadline for which an image may be expected to wait: the rate is an estimate


@dataclass(frozen=True, eq=False)
class Answered:
    """What is known about one image: the columns of its answer, and its logits where it was judged."""

    row: dict[str, Any]
    logits: Tensor | None = None


class Failed(Exception):
    """An image that could not be judged. expected: by its own fault."""

    def __init__(self, message: str, expected: bool) -> None:
        super().__init__(message)
        self.expected = expected


class Job:
    """The images of one request. ``done`` is its future: a result for each image, in order."""

    def __init__(self, count: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Answered | Exception]] = self.loop.create_future()
        self.abandoned = False  # its client has been told that it takes too long
        self._results: list[Answered | Exception | None] = [None] * count
        self._left = count

    def settle(self, index: int, result: Answered | Exception) -> None:
        """In the thread of the loop."""
        self._results[index] = result
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result([found for found in self._results if found is not None])

    def settle_later(self, index: int, result: Answered | Exception) -> None:
        """The same from another thread."""
        _tell(self.loop, self.settle, index, result)


@dataclass(frozen=True, eq=False)
class Item:
    """One image that is to be judged. inputs: once it is decoded."""

    job: Job
    index: int
    kind: Kind
    id: str
    name: str = ""
    inputs: Tensor = field(default_factory=lambda: torch.empty(0))

    def with_inputs(self, inputs: Tensor) -> Item:
        return replace(self, inputs=inputs)

    @property
    def group(self) -> tuple[Any, ...]:
        """Images of one group can share a pass."""
        return self.kind, self.inputs.shape


@dataclass(eq=False)
class Lane:
    """Judges images in batches, in a thread of its own.

    judge: rows for a batch of inputs. record: is told of every batch before it is answered.
    """

    name: str
    judge: Callable[[Tensor, Kind], list[Answered]]
    record: Callable[[Sequence[Item], Sequence[Answered], float], None]
    limits: Limits
    _waiting: deque[Item] = field(default_factory=deque)
    _inside: int = 0  # admitted and not yet answered
    _stopping: bool = False
    _rate: float = 0.0  # images a second, lately

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._thread = threading.Thread()

    def start(self, first: Callable[[], object] = lambda: None) -> None:
        """Begin, once ``first`` has been done; what it raises is raised here.

        It is done by the lane's own thread: see `in_passing_thread` for what passes in another thread would cost.
        """
        begun: Future[object] = Future()
        self._thread = threading.Thread(target=self._work, args=(first, begun), name=f"lane {self.name}", daemon=True)
        self._thread.start()
        begun.result()

    def stop(self) -> None:
        """End the thread once everything that was admitted is answered."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(self.limits.deadline_s)

    @property
    def inside(self) -> int:
        return self._inside

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def check(self, count: int = 1) -> None:
        """Refuse so many images if they would be too many, or would still wait at their deadline."""
        seconds = self._inside / self._rate if self._rate else 1.0
        late = self._rate > 0 and seconds > _PATIENCE * self.limits.deadline_s
        if late or self._inside + count > self.limits.queue:
            raise busy(f"{self._inside} images are waiting for {self.name}", min(seconds, self.limits.deadline_s))

    def admit(self, count: int) -> None:
        with self._changed:
            self.check(count)
            self._inside += count

    def leave(self, count: int = 1) -> None:
        """So many images are answered, or will not be."""
        with self._changed:
            self._inside -= count
            self._changed.notify_all()

    def put(self, item: Item) -> None:
        """An admitted image is decoded."""
        with self._changed:
            self._waiting.append(item)
            self._changed.notify_all()

    def _work(self, first: Callable[[], object], begun: Future[object]) -> None:
        try:
            begun.set_result(first())
        except BaseException as error:
            begun.set_exception(error)
            return
        while batch := self._take():
            began = time.perf_counter()
            results = self._judged(batch)
            self.leave(len(batch))
            _deliver(batch, results)
            seconds = max(time.perf_counter() - began, 1e-6)
            self._rate = 0.8 * self._rate + 0.2 * len(batch) / seconds if self._rate else len(batch) / seconds

    def _take(self) -> list[Item]:
        """The next batch: what waits, and what is decoded meanwhile, for a short time. Empty at the end."""
        with self._changed:
            while True:
                self._drop_abandoned()
                if self._waiting:
                    break
                if self._stopping and not self._inside:
                    return []
                self._changed.wait(1.0)
            until = time.monotonic() + self.limits.max_wait_ms / 1000
            # Nothing is waited for where nothing is on its way: a single client is answered at once.
            while len(self._waiting) < min(self.limits.max_batch, self._inside):
                if (left := until - time.monotonic()) <= 0 or not self._changed.wait(left):
                    break
            group = self._waiting[0].group
            batch = [item for item in self._waiting if item.group == group][: self.limits.max_batch]
            taken = set(map(id, batch))
            self._waiting = deque(item for item in self._waiting if id(item) not in taken)
            return batch

    def _drop_abandoned(self) -> None:
        kept = deque(item for item in self._waiting if not item.job.abandoned)
        self._inside -= len(self._waiting) - len(kept)
        self._waiting = kept

    def _judged(self, batch: list[Item]) -> list[Answered | Exception]:
        """A result for each image. If the pass of several fails, each is tried alone: one may be at fault."""
        began = time.perf_counter()
        try:
            found = self.judge(torch.stack([item.inputs for item in batch]), batch[0].kind)
        except Exception as error:
            if len(batch) > 1:
                return [result for item in batch for result in self._judged([item])]
            expected = isinstance(error, AdascaleError)
            if not expected:
                LOG.exception("a pass failed", extra={"fields": {"detector": self.name}})
            return [Failed(str(error) if expected else "The image could not be judged; the log says why.", expected)]
        try:
            self.record(batch, found, time.perf_counter() - began)
        except Exception:  # the answers are right, whatever befell the books
            LOG.exception("a batch could not be recorded", extra={"fields": {"detector": self.name}})
        return list(found)


def _deliver(batch: list[Item], results: list[Answered | Exception]) -> None:
    """Tell the loop of the service, once for the batch."""

    def settle() -> None:
        for item, result in zip(batch, results, strict=True):
            item.job.settle(item.index, result)

    _tell(batch[0].job.loop, settle)


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *given: Any) -> None:
    try:
        loop.call_soon_threadsafe(call, *given)
    except RuntimeError:  # the loop has ended: nobody waits any more
        LOG.warning("an answer came after the end")
