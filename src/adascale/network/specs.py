"""Texts that name a network, read without PyTorch and without running anyone's code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from adascale.core.errors import InputError
from adascale.core.suggestions import meant
from adascale.network import FORMS
from adascale.network.families import known

SOURCES = ("torchvision", "timm", "hf", "adascale")
_MOST_NAMES = 8
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # NAME or ORG/NAME; anything else can only be a path


def check_spec(spec: str) -> str:
    """The text, if it has one of the forms and the Python file that it names is there."""
    if not isinstance(spec, str):
        raise InputError(f"The network came as {type(spec).__name__}; give a text, one of {FORMS}.")
    source, _, name = spec.partition(":")
    file, _, factory = spec.rpartition(":")
    if source == "hf" and name and not _HUB_ID.fullmatch(name) and not Path(name).is_dir():
        raise InputError(f"{spec}: there is no folder {name}; give that of a saved network, or a hub id: hf:ORG/NAME.")
    if spec == "digits" or (source in SOURCES and name):
        return spec
    if (bare := spec.rstrip(":")).endswith(".py") and Path(bare).is_file():
        raise InputError(f"The network {bare} lacks the name of its factory; {has_factories(Path(bare))}")
    if file.endswith(".py") and not Path(file).is_file():
        raise InputError(f"There is no Python file {file}; a network is given as {FORMS}.")
    if file.endswith(".py") and factory:
        return spec
    raise InputError(f"The network {spec!r} has none of the forms {FORMS}{_hint(source, name)}")


def absolute(spec: str) -> str:
    """The text of a network, valid in every working directory."""
    if spec.startswith("hf:") and Path(spec[3:]).is_dir():
        return f"hf:{Path(spec[3:]).resolve()}"
    file, _, factory = spec.rpartition(":")
    return f"{Path(file).resolve()}:{factory}" if file.endswith(".py") else spec


def runs_code(spec: str) -> bool:
    """Whether loading this network runs a Python file that is not of this package."""
    file = spec.rpartition(":")[0]
    return file.endswith(".py") and not Path(file).resolve().is_relative_to(Path(__file__).resolve().parents[1])


def _hint(source: str, name: str) -> str:
    """What was probably meant: a source that is spelt so, or a network of this name that some source has."""
    if name:
        return meant(f"{source}:{name}", [f"{other}:{name}" for other in SOURCES])
    has = [f"{family.source}:{family.name}" for family in known() if family.name == source]
    return f"; did you mean {has[0]!r}?" if has else meant(source, ["digits"])


def has_factories(path: Path) -> str:
    """The end of a sentence about a Python file: which networks it offers, and how one of them is written."""
    names = factories(path)
    if not names:
        return f"{path} has no function without arguments that could make a network: write one that returns it."
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"it has {', '.join(names[:_MOST_NAMES])}{more}: write {path}:{names[0]}."


def factories(path: Path) -> list[str]:
    """The public names of a Python file that can be networks, or make one without arguments: functions first, because
    a class may be a part of a network.
    """
    return list(_factories(path))


def _factories(path: Path) -> Iterator[str]:
    try:
        body = ast.parse(path.read_text("utf8", "replace"), str(path)).body
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path} cannot be read as Python: {error}.") from error
    for node in sorted(body, key=lambda node: not isinstance(node, ast.FunctionDef)):
        if isinstance(node, ast.FunctionDef):
            names = [] if _needs_arguments(node) else [node.name]
        elif isinstance(node, ast.ClassDef):
            starts = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
            usable = node.bases and not any(_needs_arguments(start, 1) for start in starts)
            names = [node.name] if usable else []
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        else:
            names = []
        yield from (name for name in names if not name.startswith("_"))


def _needs_arguments(function: ast.FunctionDef, own: int = 0) -> bool:
    """Whether a function must be given arguments. own: those that Python gives, such as ``self``."""
    given = function.args
    needed = len(given.posonlyargs) + len(given.args) - len(given.defaults) - own
    return needed > 0 or None in given.kw_defaults
