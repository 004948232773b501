"""What the commands share: the application, common options, talk on stderr, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from adascale.network.loading import FORMS

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # else "[default: ...]" in a help text is taken for a colour and vanishes
    help="Tells when an image classifier is looking at something it was never trained on.",
)
SOME_UNREADABLE, INTERRUPTED = 3, 130

Images = Annotated[str, typer.Argument(help="Folder (recursive), image, image list (.txt), .npz, or - for a list.")]
Model = Annotated[str, typer.Option("--model", help=f"The network: {FORMS}.")]
Weights = Annotated[Path | None, typer.Option(help="Weights file: .safetensors, or a .pth state dict.")]
Root = Annotated[Path | None, typer.Option(help="Where the paths of an image list start [default: its folder].")]
BatchSize = Annotated[int, typer.Option(min=1, help="Images per pass.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps ...; auto takes a GPU where there is one.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Decoding threads [default: one a core, at most 8].")]
Size = Annotated[str | None, typer.Option(help="Resize: shorter side, or HEIGHT,WIDTH.")]
Crop = Annotated[str | None, typer.Option(help="Centre crop, the side of the input, or HEIGHT,WIDTH.")]
Mean = Annotated[str | None, typer.Option(help="Channel means, e.g. 0.485,0.456,0.406.")]
Std = Annotated[str | None, typer.Option(help="Channel deviations, e.g. 0.229,0.224,0.225.")]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", help="bf16 or fp16: faster where the hardware has it, scores change a bit.")
]
Compile = Annotated[bool, typer.Option("--compile", help="torch.compile the network: slow at first, then faster.")]
Draft = Annotated[bool, typer.Option("--draft", help="Decode large JPEGs at a fraction of their size: faster.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def plain_table(*columns: str) -> Table:
    table = Table(box=None, show_header=bool(columns), pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0)
    return table


def end(failed: int, total: int) -> None:
    if failed:
        say(f"{failed} of {total} images could not be read")
        raise typer.Exit(SOME_UNREADABLE)


@contextmanager
def resumable(kept: bool = True) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say("adascale: interrupted" + ("; the same command goes on where it stopped." if kept else "."))
        raise typer.Exit(INTERRUPTED) from None


def say(text: str) -> None:
    print(text, file=sys.stderr)
