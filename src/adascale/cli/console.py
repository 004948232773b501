"""The application, messages on stderr, exit codes, and what ends a command from outside."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.table import Table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # else "[default: ...]" in a help text is taken for a colour and vanishes
    help="Tells when an image classifier is looking at something it was never trained on.",
)
SOME_UNREADABLE, ALARM, INTERRUPTED, TERMINATED = 3, 4, 130, 143


def plain_table(*columns: str) -> Table:
    """A table without borders whose first column is not wrapped."""
    table = Table(box=None, show_header=bool(columns), pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0)
    return table


def say(text: str) -> None:
    print(text, file=sys.stderr)


def end(failed: int, total: int) -> None:
    """Exit with 3 if some images could not be read."""
    if failed:
        say(f"{failed} of {total} images could not be read")
        raise typer.Exit(SOME_UNREADABLE)


class Terminated(BaseException):
    """SIGTERM has come. Like Ctrl-C it is no ``Exception``: what cleans up after one cleans up after both."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises `Terminated` meanwhile; a second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield
        return

    def stop(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block has ended: it is done as a whole or not at all."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)


STOPS = (KeyboardInterrupt, Terminated)


def stopped_by(error: BaseException) -> tuple[str, int]:
    """What ended a command, in a word, and its exit code."""
    return ("terminated", TERMINATED) if isinstance(error, Terminated) else ("interrupted", INTERRUPTED)


@contextmanager
def resumable(kept: bool = True) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into one line and the exit codes 130 and 143. kept: whether finished work was stored."""
    try:
        yield
    except STOPS as error:
        word, code = stopped_by(error)
        say(f"adascale: {word}" + ("; the same command resumes where it stopped." if kept else "."))
        raise typer.Exit(code) from None
