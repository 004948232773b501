"""A page for every command, made from its options: what ``adascale COMMAND --help`` prints, as tables."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin

from adascale.report.markdown import in_markdown


def text_table(header: list[str], lines: list[list[str]]) -> str:
    """A table of words, which are not aligned to the right as numbers are."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def commands() -> dict[str, Any]:
    """Every command by its name, in the order of the help."""
    from typer.main import get_command

    from adascale.cli.main import app

    return dict(get_command(app).commands)  # type: ignore[attr-defined]


def pages() -> dict[str, str]:
    found = commands()
    lines = [[f"[`adascale {name}`]({name}.md)", _sentence(found[name])] for name in found]
    index = f"# Commands\n\n{text_table(['command', 'what it does'], lines)}\n{_EXIT_CODES}"
    texts = {name: page(name, command) for name, command in found.items()}
    return {"reference/cli/index.md": index} | {f"reference/cli/{name}.md": text for name, text in texts.items()}


_EXIT_CODES = """
What every command has in common, and the exit codes, are told in [the command line](../../command-line.md).
"""


def page(name: str, command: Any) -> str:
    """Usage, arguments and options of one command."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    shown = " ".join(_shown(one) for one in arguments)
    required = " ".join(f"{one.opts[0]} {_value(one)}" for one in options if one.required)
    usage = " ".join(part for part in (f"adascale {name}", shown, required, "[OPTIONS]") if part)
    parts = [f"# adascale {name}\n\n{command.help}\n\n```text\n{usage}\n```\n"]
    if arguments:
        parts.append(text_table(["argument", ""], [[f"`{_shown(one)}`", _help(one)] for one in arguments]))
    parts.append(text_table(["option", "meaning", "default"], [_option(one) for one in options]))
    return "\n".join(parts)


def _sentence(command: Any) -> str:
    return in_markdown(" ".join((command.help or "").split("\n\n")[0].split()))


def _shown(argument: Any) -> str:
    text = (argument.metavar or argument.name).upper() + ("..." if argument.nargs == -1 else "")
    return text if argument.required else f"[{text}]"


def _help(parameter: Any) -> str:
    """The words of an argument or option; names of options in them do not break at their dashes."""
    return re.sub(r"(?<![\w`-])--[a-z][\w-]*", r"`\g<0>`", in_markdown(" ".join((parameter.help or "").split())))


def _option(option: Any) -> list[str]:
    value = "" if option.is_flag else f" {_value(option)}"
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    default = "required" if option.required else ""
    if not option.required and not option.is_flag and option.default not in (None, [], ()):
        default = f"`{option.default}`"
    return [names + (f" `{value.strip()}`" if value else ""), _help(option), default]


def _choices(annotation: Any) -> list[str]:
    """The values of a ``Literal``, or of an optional one; else none."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    return next((found for part in get_args(annotation) if (found := _choices(part))), [])


def _value(option: Any) -> str:
    """What is given with the option: its choices, or a word for its kind."""
    if option.metavar:
        return str(option.metavar)
    if choices := _choices(getattr(option.type_descriptor, "annotation", None)):
        return "|".join(choices)
    return str(option.opts[0].lstrip("-").upper().replace("-", "_"))
