"""The command line. Data on stdout, talk and progress on stderr.

Exit codes: 0 done; 2 a mistake in the call, told in one line; 3 done, but some images could not be read (each has its
row and reason); 130 interrupted, the same command goes on where it stopped; 1 an error of ours.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from adascale import detectors
from adascale.cli import bench as cli_bench
from adascale.cli import fit as cli_fit
from adascale.cli import study as cli_study
from adascale.cli import train as cli_train
from adascale.cli.console import AsJson, app, plain_table, say
from adascale.cli.describe import described, in_full
from adascale.core.errors import AdascaleError
from adascale.core.version import __version__
from adascale.decision.detector_file import DetectorFile

__all__ = ["app", "cli_bench", "cli_fit", "cli_study", "cli_train", "main"]  # importing them adds their commands


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="One method, in full.")] = None, as_json: AsJson = False
) -> None:
    """List the methods; with a NAME, its definition, parameters and search space."""
    chosen = detectors.ALL if name is None else (detectors.get(name),)
    if as_json:
        print(json.dumps([described(cls) for cls in chosen]))
    elif name is not None:
        print(in_full(chosen[0]))
    else:
        table = plain_table("method", "what it is", "fitted on", "passes", "cost")
        for row in map(described, chosen):
            table.add_row(row["name"], row["summary"], row["fitted_on"], row["passes"], row["cost"])
        Console().print(table)


@app.command()
def inspect(file: Annotated[Path, typer.Argument(help="A detector file.")], as_json: AsJson = False) -> None:
    """Show what a detector file holds."""
    record = DetectorFile.read(file).record
    if as_json:
        print(json.dumps(record))
        return
    table = plain_table()
    for section, value in record.items():
        for name, entry in value.items() if isinstance(value, dict) else [("", value)]:
            table.add_row(f"{section}.{name}".rstrip("."), "-" if entry is None else str(entry))
    Console().print(table)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the detector, the network and example images.")] = Path(
        "adascale-demo"
    ),
    method: Annotated[list[str] | None, typer.Option(help="Only these methods [default: all]; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """The main job, offline, in under a minute: train a small network, fit every method, compare, decide."""
    from adascale.cli.demo import run

    run(out, as_json, None if method and "all" in method else method)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    warnings.showwarning = lambda message, *_, **__: say(f"note: {message}")
    try:
        app()
    except AdascaleError as error:
        say(f"adascale: {error}")
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        say(f"adascale: {error}")
        sys.exit(2)
