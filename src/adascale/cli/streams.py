"""Standard streams that may be closed, cut off by a reader such as ``head``, or unable to show every character."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast


class ReaderLeft(Exception):
    """Whoever read stdout has closed it. It is no ``OSError``, because libraries turn that into exit code 1."""


class _Output:
    """A stream that raises `ReaderLeft`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        written: int = _told(lambda: self._stream.write(text))
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        _told(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _told(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except BrokenPipeError:
        raise ReaderLeft from None


@contextmanager
def safe_streams() -> Iterator[None]:
    """Streams that are closed take everything and show nothing; no name of a file is impossible to print.

    UTF-8 passes the bytes of a name as they are; another encoding shows what it lacks as ``\\xe4``.
    """
    _open_closed()
    before = sys.stdout
    if isinstance(before, io.TextIOWrapper):
        utf8 = (before.encoding or "").lower().replace("-", "") == "utf8"
        before.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")
    sys.stdout = cast(TextIO, _Output(before))
    try:
        yield
        sys.stdout.flush()
    except ReaderLeft:
        with suppress(OSError, ValueError):  # so that the last flush of the interpreter finds a reader
            os.dup2(os.open(os.devnull, os.O_WRONLY), before.fileno())
        raise
    finally:
        sys.stdout = before


def _open_closed() -> None:
    """Open the null device in place of closed streams, in order: else the next file that is opened would be stdout."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            with suppress(OSError):
                if (opened := os.open(os.devnull, os.O_RDWR)) != number:
                    os.dup2(opened, number)
                    os.close(opened)
                setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 (as long as the process lives)
