"""Reading the body of a request within the limits: counted while it arrives, refused as soon as it is too large."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from adascale.service.limits import Limits
from adascale.service.refusals import Refused, busy, slow, too_large

# What is read of a refused body and thrown away. A client that is still sending would else not see the answer.
_DISCARDED_BYTES, _DISCARDED_SECONDS = 256 * 2**20, 5.0
_SHORT = 2**16


class Memory:
    """The bytes of all bodies that are held at a time."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self.held = 0

    def take(self, count: int) -> None:
        with self._lock:
            if self.held + count > self._most:
                raise busy(f"The requests under way hold {self.held} bytes")
            self.held += count

    def give_back(self, count: int) -> None:
        with self._lock:
            self.held -= count


class Lease:
    """The share of `Memory` that one body takes, given back when its last holder lets go."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._lock = memory, threading.Lock()
        self._taken, self._holders = 0, 1

    def grow(self, count: int) -> None:
        self._memory.take(count)
        self._taken += count

    def hold(self, holders: int) -> None:
        with self._lock:
            self._holders += holders

    def drop(self) -> None:
        with self._lock:
            self._holders -= 1
            last = not self._holders
        if last:
            self._memory.give_back(self._taken)


class Incoming:
    """The messages of one request, which know when the body has ended."""

    def __init__(self, receive: Receive, until: float) -> None:
        self._receive, self._until, self._read = receive, until, 0
        self.complete = False

    async def receive(self) -> Message:
        """For endpoints that leave the reading to the framework: short bodies, in time."""
        if self.complete:
            return await self._receive()
        try:
            message = await self._before(self._until)
        except Refused as refused:  # the framework lets its own kind of error pass
            raise HTTPException(refused.status, refused.message, refused.headers) from None
        self._read += len(message.get("body", b""))
        if self._read > _SHORT:
            raise HTTPException(413, f"The body is too large; at most {_SHORT} bytes are taken.")
        return message

    async def body(self, limits: Limits, lease: Lease) -> bytes:
        """The whole body, which must be complete in time."""
        body = bytearray()
        while True:
            message = await self._before(self._until)
            chunk = message.get("body", b"")
            if len(body) + len(chunk) > limits.max_body:
                raise too_large(limits.max_body)
            lease.grow(len(chunk))
            body += chunk
            if self.complete:
                return bytes(body)

    async def _before(self, until: float) -> Message:
        left = until - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), max(left, 0.0))
        except asyncio.TimeoutError:
            raise slow() from None
        self.complete = not message.get("more_body", False)
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        return message

    async def discard(self) -> None:
        """Read what is left of a refused body and throw it away. A client that is still sending it would else find
        its connection closed, and not see the answer.
        """
        read, until = 0, asyncio.get_running_loop().time() + _DISCARDED_SECONDS
        with suppress(Refused, ClientDisconnect):
            while not self.complete and read < _DISCARDED_BYTES:
                read += len((await self._before(until)).get("body", b""))


def check_head(headers: Mapping[str, str], limits: Limits) -> None:
    """Refuse a body by what the head says about it."""
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limits.max_body:
        raise too_large(limits.max_body)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "Compressed bodies are not taken; send the image as it is.")
