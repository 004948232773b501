"""The application, messages on stderr, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.table import Table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # else "[default: ...]" in a help text is taken for a colour and vanishes
    help="Tells when an image classifier is looking at something it was never trained on.",
)
SOME_UNREADABLE, ALARM, INTERRUPTED = 3, 4, 130


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


@contextmanager
def resumable(kept: bool = True) -> Iterator[None]:
    """Turn Ctrl-C into one line and exit code 130. kept: whether finished work was stored."""
    try:
        yield
    except KeyboardInterrupt:
        say("adascale: interrupted" + ("; the same command resumes where it stopped." if kept else "."))
        raise typer.Exit(INTERRUPTED) from None
