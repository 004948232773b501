"""What the service takes on, and what it refuses. Nothing here imports PyTorch or FastAPI."""

from __future__ import annotations

import os
from dataclasses import dataclass

from adascale.core.errors import InputError

MEGABYTE = 2**20


@dataclass(frozen=True)
class Limits:
    """The bounds of the service; all but header_s and remember have an option of ``adascale serve``.

    max_batch: images of one pass. max_wait_ms: how long a pass waits for images that are being decoded. queue: images
    of one detector that are taken on at a time; more are answered by 503. max_body_mb: of one request. max_memory_mb:
    of all bodies together. max_pixels: of one image. max_images: of one request. deadline_s: from the first byte of a
    request to its answer. header_s: within which the head of a request must be complete. keep_alive_s: how long an idle
    connection stays open; longer than clients and load balancers keep theirs, so that none sends into a closing one.
    decoders: threads that decode. connections: open ones. remember: verdicts of each detector that feedback can be
    given on. drain_s: how long a stopping service still answers, by 503, before it closes its port.
    """

    max_batch: int = 16
    max_wait_ms: float = 5.0
    queue: int = 256
    max_body_mb: float = 32.0
    max_memory_mb: float = 256.0
    max_pixels: int = 50_000_000
    max_images: int = 64
    deadline_s: float = 30.0
    header_s: float = 10.0
    keep_alive_s: int = 75
    decoders: int = 0
    connections: int = 512
    remember: int = 10_000
    drain_s: float = 1.0

    def __post_init__(self) -> None:
        for name in ("max_batch", "queue", "max_pixels", "max_images", "keep_alive_s", "connections", "remember"):
            self._at_least(name, 1)
        for name in ("max_wait_ms", "drain_s", "decoders"):
            self._at_least(name, 0)
        for name in ("max_body_mb", "max_memory_mb", "deadline_s", "header_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}={getattr(self, name)}; it must be above 0.")
        if self.max_images > self.queue:
            raise InputError(
                f"max_images={self.max_images} and queue={self.queue}; a request with so many images would never be "
                "taken on. Let the queue be at least as long."
            )
        if self.max_body_mb > self.max_memory_mb:
            raise InputError(
                f"max_body_mb={self.max_body_mb:g} and max_memory_mb={self.max_memory_mb:g}; "
                "a body must fit into the memory for all bodies."
            )
        if not self.decoders:
            object.__setattr__(self, "decoders", min(8, os.cpu_count() or 1))

    def _at_least(self, name: str, least: int) -> None:
        if not getattr(self, name) >= least:
            raise InputError(f"{name}={getattr(self, name)}; it must be at least {least}.")

    @property
    def max_body(self) -> int:
        """Bytes of one request."""
        return int(self.max_body_mb * MEGABYTE)

    @property
    def max_memory(self) -> int:
        """Bytes of all requests that are under way."""
        return int(self.max_memory_mb * MEGABYTE)
