"""Reference pages of the public names: those of ``adascale`` and of the modules that docs/api.md lists."""

from __future__ import annotations

import re
from pathlib import Path

import adascale

LIST = Path(__file__).parents[2] / "docs" / "api.md"
_ROW = re.compile(r"^\| `(adascale\.[\w.]+)` \| (.*) \|$", re.M)


def listed() -> dict[str, list[str]]:
    """Public module -> its public names, as docs/api.md lists them."""
    found: dict[str, list[str]] = {}
    for module, text in _ROW.findall(LIST.read_text("utf8")):
        names = re.findall(r"`([A-Za-z_]\w*)[^`]*`", text.split(":")[0] if ": " in text else text)
        found.setdefault(module, []).extend(names)
    return found


def pages() -> dict[str, str]:
    """One page for the names of ``adascale``, one for the methods, one for each room that has public modules."""
    rooms: dict[str, list[str]] = {}
    for module in listed():
        rooms.setdefault(module.split(".")[1], []).append(module)
    first = {"reference/python/adascale.md": _top(), "reference/python/methods.md": _methods()}
    return first | {f"reference/python/{room}.md": _room(room, sorted(modules)) for room, modules in rooms.items()}


def _entry(path: str, level: int = 2, *options: str) -> str:
    lines = [f"      {line}" for line in options]
    return "\n".join([f"::: {path}", "    options:", f"      heading_level: {level}", *lines, ""])


def _top() -> str:
    homes = {name: f"adascale.{home}.{name}" for home, names in adascale._HOMES.items() for name in names}
    modules = ["adascale.metrics", "adascale.testing"]
    words = "Every name here can be imported from `adascale`. [Public names](../../api.md) says what each is for.\n"
    entries = [_entry(homes[name]) for name in adascale.__all__ if name in homes]
    return "\n".join(["# adascale\n", words, *entries, *(_entry(module) for module in modules)])


def _methods() -> str:
    from adascale.detectors.registry import OURS

    words = (
        "Each class is a method: `adascale.detectors.get(NAME)` gives it. [Methods](../../methods.md) compares them.\n"
    )
    options = "members: []", "inherited_members: false"  # those of Detector, which has its place on the page of names
    entries = [_entry(f"adascale.detectors.{where.replace(':', '.')}", 2, *options) for where in OURS.values()]
    return "\n".join(["# Methods\n", words, *entries])


def _room(room: str, modules: list[str]) -> str:
    parts = [f"# adascale.{room}\n"]
    for module in modules:
        names = listed()[module]
        chosen = [f"members: [{', '.join(names)}]"] if names else []
        parts.append(_entry(module, 2, *chosen))
    return "\n".join(parts)
