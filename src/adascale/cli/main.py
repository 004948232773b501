"""The command line. Data go to stdout, messages and progress to stderr.

Exit codes: 0 done; 2 a mistake in the call, told in one line; 3 done, but some images could not be read (each has its
row and reason); 130 interrupted, the same command resumes; 1 an error of ours.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import Annotated

import typer

from adascale.cli import commands
from adascale.cli.console import app, say
from adascale.cli.spellings import current
from adascale.core.errors import AdascaleError
from adascale.core.version import __version__

__all__ = ["app", "commands", "main"]  # importing the commands registers them

# Parameters of the library that are options of a command; a method's parameters, such as p_max=90, are given by --set.
FLAGS = {"compiled": "--compile"} | {
    name: "--" + name.replace("_", "-")
    for name in "alpha attack_steps available batch_size budget classes confidence data device draft epochs eps fdr "
    "head init keep limit limit_fit loss lr method out precision preset save_every split_seed train tune weight_decay "
    "weights width workers".split()
}


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command of this process's arguments and exit."""
    warnings.showwarning = lambda message, *_, **__: say(f"note: {in_flags(str(message))}")
    try:
        app(args=current(sys.argv[1:]))
    except BrokenPipeError:
        sys.exit(0)
    except (AdascaleError, OSError) as error:
        say(f"adascale: {in_flags(str(error))}")
        sys.exit(2)


def in_flags(message: str) -> str:
    """A message of the library, which speaks of ``batch_size=0``, in the words of the shell: ``--batch-size 0``."""

    def flag(found: re.Match[str]) -> str:
        name, value = found["name"], found["value"].strip("'\"")
        if name not in FLAGS:
            return found[0]
        return f"{FLAGS[name]} {value}" if value not in ("", "True") else FLAGS[name]

    message = re.sub(r"load\(\.\.\., (\w+=)\)", r"\1", message)
    message = re.sub(r"=detectors\.get\(('[^']*')\)", r"=\1", message)
    return re.sub(r"(?<![\w.-])(?P<name>[a-z_]+)=(?P<value>'[^']*'|\"[^\"]*\"|[^\s,;()]*[^\s,;().:]|)", flag, message)
