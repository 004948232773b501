"""Progress on stderr: a bar on a terminal, a line now and then in a log; in a notebook a bar below the cell."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from html import escape
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_LOG_EVERY_SECONDS, _DRAW_EVERY_SECONDS = 20.0, 0.2
_BAR = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("{task.fields[rate]}"),
    TimeRemainingColumn(),
    TextColumn("{task.fields[note]}"),
)


class Advance(Protocol):
    def __call__(self, images: int, note: str = "") -> None: ...


@contextmanager
def progress(title: str, total: int, done: int = 0, quiet: bool = False, unit: str = "images") -> Iterator[Advance]:
    """Calls of the yielded function move the display on by so many images; ``note`` is shown beside it.

    quiet: show nothing, because someone else shows the progress of the whole work. unit: what is counted.
    """
    if quiet:
        yield lambda images, note="": None
        return
    console, began, seen = Console(stderr=True), time.monotonic(), 0
    last = began
    bar = Progress(*_BAR, console=console, transient=True)
    task = bar.add_task(title, total=total, completed=done, rate="", note="")

    def advance(images: int, note: str = "") -> None:
        nonlocal seen, last
        seen += images
        now = time.monotonic()
        rate = seen / max(now - began, 1e-9)
        if console.is_terminal:
            bar.update(task, advance=images, rate=f"{rate:.1f} {unit}/s", note=note)
        elif now - last >= _LOG_EVERY_SECONDS:
            last = now
            left = f", {(total - done - seen) / rate:.0f} s left" if seen else ""
            line = f"{title}: {done + seen} of {total}, {rate:.1f} {unit}/s{left}"
            console.print(f"{line}, {note}" if note else line, highlight=False, soft_wrap=True)

    if console.is_jupyter:
        yield _in_notebook(title, total, done)
        return
    with bar if console.is_terminal else nullcontext():
        yield advance


def _in_notebook(title: str, total: int, done: int) -> Advance:
    """A bar below the cell, which is drawn again in its place: rich's own would need ipywidgets."""
    began, last, seen = time.monotonic(), 0.0, 0
    shown = importlib.import_module("IPython.display").display(_Line(title, done, total), display_id=True)

    def advance(images: int, note: str = "") -> None:
        nonlocal last, seen
        seen += images
        now = time.monotonic()
        if now - last >= _DRAW_EVERY_SECONDS or done + seen >= total:
            last, rate = now, seen / max(now - began, 1e-9)
            shown.update(_Line(title, done + seen, total, f"{rate:.1f} images/s {note}".strip()))

    return advance


class _Line(NamedTuple):
    """What a notebook shows of work under way."""

    title: str
    done: int
    total: int
    text: str = ""

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.done}" max="{max(1, self.total)}"></progress>'
        return f"<div>{escape(self.title)} {bar} {self.done}/{self.total} {escape(self.text)}</div>"

    def __repr__(self) -> str:
        return f"{self.title}: {self.done} of {self.total} {self.text}".strip()
