"""Work in a thread that ends with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_passing_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, done in a thread of its own.

    Every thread that computes with PyTorch keeps a pool of OpenMP threads until it ends. Once the pools together have
    more threads than the machine has cores, libgomp lets waiting threads sleep instead of spin, and a network of many
    small layers takes about twice as long in every thread. Work that is done once must not leave a pool behind where
    another thread is to compute from then on.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="passing", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
