"""How much memory pictures may take: one picture, one array file, and all that decoders hold at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from adascale.core.errors import InputError

# The limit beyond which Pillow warns: 256 MiB of RGB. A picture of this size takes about 0.8 GB in the worst mode.
MAX_PIXELS = 89_478_485
_ARRAY_BYTES = 10  # the bytes that an array file may unpack to, for each of the pixels that a picture may have


def check_max_pixels(value: int) -> int:
    """The limit, if it is one."""
    if value < 1:
        raise InputError(f"max_pixels={value}; it counts the pixels that a picture may have, at least 1.")
    return value


def check_pixels(width: int, height: int, max_pixels: int) -> int:
    """The number of pixels of a picture; too many are a ``ValueError``, the reason that its row will have."""
    if width * height > max_pixels:
        raise ValueError(f"{width} x {height} pixels are more than max_pixels={max_pixels}")
    return width * height


def most_array_bytes(max_pixels: int) -> int:
    """What the arrays of one .npz may unpack to: 0.9 GB by default."""
    return _ARRAY_BYTES * max_pixels


def check_file_bytes(size: int, max_pixels: int) -> int:
    """The bytes of an encoded picture that is read whole; too many are the reason that its row will have."""
    if size > most_array_bytes(max_pixels):
        raise ValueError(f"a file of {size} bytes is more than the {most_array_bytes(max_pixels)} of {max_pixels=}")
    return size


class Budget:
    """Lets threads in as long as what they hold together is at most ``most``. A single one may always hold more."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)  # the threads that hold a part are not in the child

    def _reset(self) -> None:
        self._held, self._changed = 0, threading.Condition()

    @contextmanager
    def share(self, amount: int) -> Iterator[None]:
        """Wait until there is room for this amount, and hold it meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + amount <= self.most)
            self._held += amount
        try:
            yield
        finally:
            with self._changed:
                self._held -= amount
                self._changed.notify_all()


ENCODED = Budget(2**28)  # bytes of pictures that are read whole, because they are not on a disk of this machine
DECODED = Budget(MAX_PIXELS)  # of all threads of this process
