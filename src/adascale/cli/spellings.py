"""Other spellings of options.

Those that were renamed: for one release the old spelling works, and a note on stderr says the new one. And ``--engine
ray``, which some will try: who makes the passes is ``--on``; the engine is what runs the network there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adascale.cli.console import say

RENAMED: Mapping[str, Mapping[str, str]] = {
    "bench": {"--methods": "--method"},
    "fit": {"--output": "--out"},
    "score": {"--output": "--out"},
}
SPREAD = ("bench", "fit", "score", "study", "tune")  # the commands that take --on


def current(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line in today's spelling."""
    command = next((text for text in arguments if not text.startswith("-")), "")
    renamed = RENAMED.get(command, {})
    found: list[str] = []
    for index, text in enumerate(arguments):
        if text == "--":
            return [*found, *arguments[index:]]
        if command in SPREAD and (text == "--engine=ray" or (text == "ray" and found[-1:] == ["--engine"])):
            say("note: --engine ray is taken for --on ray; --engine says what runs the network in a worker.")
            found[-1:] = ["--on", "ray"] if text == "ray" else [*found[-1:], "--on", "ray"]
            continue
        name, equals, value = text.partition("=")
        if name in renamed:
            say(f"note: {name} is now {renamed[name]}; the old name works in this release only.")
            name = renamed[name]
        found.append(name + equals + value)
    return found
