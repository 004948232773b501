"""The command line. Data go to stdout, messages and progress to stderr.

Exit codes: 0 done, also if the reader of stdout has left (``| head``); 2 a mistake in the call, told in one line; 3
done, but some images could not be read (each has its row and reason); 4 an alarm of ``monitor`` is raised; 130
interrupted and 143 terminated (SIGTERM), the same command resumes; 1 an error of ours.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import Annotated, Any

import typer

from adascale.cli import commands, explain_command, research_commands, service_command
from adascale.cli.console import app, resumable, say, terminable
from adascale.cli.spellings import current
from adascale.cli.streams import ReaderLeft, safe_streams
from adascale.core.errors import AdascaleError
from adascale.core.version import __version__

__all__ = [
    "app",
    "commands",
    "explain_command",
    "main",
    "research_commands",
    "service_command",
]  # importing the commands registers them

# Parameters of the library that are options of a command; a method's parameters, such as p_max=90, are given by --set.
FLAGS = {"compiled": "--compile"} | {
    name: "--" + name.replace("_", "-")
    for name in "alpha attack_steps available batch_size budget classes confidence connections data deadline_s "
    "decoders delta device drain_s draft engine epochs eps every fdr head host init keep keep_alive_s "
    "limit limit_fit loss lr max_batch max_body_mb max_images max_memory_mb max_pixels max_wait_ms method model out "
    "port precision preset queue replace run_length save_every split_seed train trust tune weight_decay "
    "weights width workers".split()
}


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command of this process's arguments and exit."""
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # Pillow's; the row of the image says it
    warnings.showwarning = lambda message, *_, **__: say(f"note: {in_flags(str(message))}")
    try:
        with safe_streams(), terminable(), resumable(kept=False):
            code = app(args=current(sys.argv[1:]), prog_name="adascale", standalone_mode=False)
    except ReaderLeft:
        sys.exit(0)
    except (AdascaleError, OSError) as error:
        say(f"adascale: {in_flags(str(error))}")
        sys.exit(2)
    except _CLICK_ERROR as error:
        if told := _usage(error):
            say(f"adascale: {told}")
        sys.exit(2)
    except typer.Exit as ended:  # SIGTERM at a moment of which the command does not know
        sys.exit(ended.exit_code)
    except typer.Abort:
        say("adascale: stopped.")
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


# typer raises the errors of click, or of the copy of click that its newer versions carry
_CLICK_ERROR: type[Exception] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def _usage(error: Any) -> str:
    """A mistake in the call that click found, in one line. Empty where click has printed the help in its place."""
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    message += "" if message.endswith((".", "?")) else "."
    return message if context is None else f"{message} See {context.command_path} --help."


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
