"""The service without its protocol: detectors, decoding pool, memory of bodies."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from adascale.core.errors import InputError
from adascale.service.bodies import Lease, Memory
from adascale.service.judges import Judge
from adascale.service.lane import Answered, Item, Job, Kind
from adascale.service.limits import Limits
from adascale.service.measures import Measures
from adascale.service.pictures import Picture, Unreadable, decoded
from adascale.service.refusals import Refused, late
from adascale.service.served import Served

Result = tuple[str, str, "Answered | Exception"]  # the id and name of an image, and its answer
T = TypeVar("T")


class House:
    """Everything between a request and its answer."""

    def __init__(self, judges: Mapping[str, Judge], limits: Limits, state: Path | None = None) -> None:
        if not judges:
            raise InputError("There is no detector to serve; name a detector file.")
        self.limits, self.measures = limits, Measures()
        self.memory = Memory(limits.max_memory)
        self.measures.held.set_function(lambda: self.memory.held)
        self.detectors = {name: Served(name, judge, limits, self.measures, state) for name, judge in judges.items()}
        self._pool = ThreadPoolExecutor(limits.decoders, thread_name_prefix="decoder")

    def start(self) -> None:
        for detector in self.detectors.values():
            detector.start()

    def stop(self) -> None:
        """Answer what was taken on, then end."""
        for detector in self.detectors.values():
            detector.stop()
        self._pool.shutdown(cancel_futures=True)

    def save(self) -> None:
        for detector in self.detectors.values():
            detector.save()

    @property
    def alive(self) -> bool:
        return all(detector.lane.alive for detector in self.detectors.values())

    def named(self, name: str | None) -> Served:
        """The detector of this name; the first one where none is named."""
        found = next(iter(self.detectors.values())) if name is None else self.detectors.get(name)
        if found is None:
            raise Refused(404, f"There is no detector {name!r}; there is {', '.join(self.detectors)}.")
        return found

    def lease(self) -> Lease:
        return Lease(self.memory)

    async def in_pool(self, work: Callable[[], T], until: float) -> T:
        """Work that would hold up the loop, done by a decoder."""
        loop = asyncio.get_running_loop()
        try:
            return await asyncio.wait_for(loop.run_in_executor(self._pool, work), until - loop.time())
        except asyncio.TimeoutError:
            raise late(self.limits.deadline_s) from None

    async def judged(
        self, served: Served, given: Sequence[Picture | Tensor], kind: Kind, lease: Lease, until: float
    ) -> list[Result]:
        """The answers for encoded images, or for inputs, in order. All of them are taken on, or none is."""
        served.lane.admit(len(given))
        job, ids = Job(len(given)), [secrets.token_hex(8) for _ in given]
        for index, one in enumerate(given):
            if isinstance(one, Picture):
                lease.hold(1)
                self._pool.submit(self._decode, served, Item(job, index, kind, ids[index], one.name), one.data, lease)
            else:
                served.lane.put(Item(job, index, kind, ids[index], inputs=one))
        try:
            left = until - asyncio.get_running_loop().time()
            results = await asyncio.wait_for(job.done, max(left, 0.0))
        except asyncio.TimeoutError:
            raise late(self.limits.deadline_s) from None
        finally:
            job.abandoned = True
        names = [one.name if isinstance(one, Picture) else "" for one in given]
        return list(zip(ids, names, results, strict=True))

    def _decode(self, served: Served, item: Item, data: bytes, lease: Lease) -> None:
        """In the pool: the image goes on to the lane, or its failure back to the request."""
        try:
            if item.job.abandoned:
                served.lane.leave()
                return
            served.lane.put(item.with_inputs(decoded(data, served.judge.preprocess, self.limits.max_pixels)))
        except Unreadable as error:
            served.unreadable()
            served.lane.leave()
            item.job.settle_later(item.index, error)
        finally:
            lease.drop()
