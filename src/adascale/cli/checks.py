"""Values of options that are refused before any work, and before PyTorch is imported. A check returns its value."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adascale.bench import check_suite
from adascale.bench.columns import IN_REGISTRY, named
from adascale.core.engines import check_engine
from adascale.core.errors import InputError
from adascale.core.extras import check_installed
from adascale.export.formats import format_of
from adascale.images.places import ADVICE, expanded, present
from adascale.maths import promise
from adascale.network.class_names import class_names
from adascale.network.specs import check_spec
from adascale.network.trained import is_network_list
from adascale.report.document import FIGURE_FORMATS
from adascale.storage.remote import Place, Url, as_place, check_local, is_url
from adascale.storage.rows import SUFFIXES

_SHORTEST_TOKEN = 16


def method_names(texts: list[str]) -> list[str]:
    """The methods asked for, each once; ``all`` is every method. An unknown one is refused."""
    from adascale.detectors import registry

    names = list(dict.fromkeys(part.strip() for text in texts for part in text.split(",") if part.strip()))
    known = registry.names()
    if "all" in names:
        return known
    for name in names:
        if name not in known:
            registry.get(name)
    return names


def known_methods(value: Any) -> Any:
    method_names([value] if isinstance(value, str) else value or [])
    return value


def known_suite(value: Any) -> Any:
    return value if value is None else check_suite(value)


SORTS = "near-auroc, far-fpr95, near-fpr95-id, far-aupr-in, near-aupr-out, full-near-auroc ..."


def known_sort(value: Any) -> Any:
    if value not in ("", IN_REGISTRY):
        named(value)
    return value


def column_names(texts: list[str] | None) -> list[str]:
    """The columns asked for, each once, repeated or with commas. An unknown one is refused."""
    parts = dict.fromkeys(part.strip() for text in texts or [] for part in text.split(",") if part.strip())
    for name in parts:
        named(name)
    return list(parts)


def figure_formats(value: Any) -> Any:
    for text in value or []:
        if text not in FIGURE_FORMATS:
            raise InputError(f"--figures {text}: give one of {', '.join(FIGURE_FORMATS)}.")
    return value


def known_columns(value: Any) -> Any:
    column_names(value)
    return value


def known_studies(value: Any) -> Any:
    from adascale.paper.published import check_study

    for name in value if value != ["list"] else []:
        if name != "all":
            check_study(name)
    return value


def known_preset(value: Any) -> Any:
    from adascale.paper.published import place

    for text in [value] if isinstance(value, str) else value or []:
        place(text)
    return value


def networks(value: Any) -> Any:
    """One network, or several; lists of networks are looked into later."""
    for spec in [value] if isinstance(value, str) else value or []:
        if not is_network_list(spec):
            check_spec(spec)
    return value


def settings(value: Any) -> Any:
    for text in value or []:
        if not re.fullmatch(r"[^=]+=.*", text, re.DOTALL):
            raise InputError(f"--set {text}: give NAME=VALUE, such as p_max=90, or METHOD.NAME=VALUE.")
    return value


def device(value: Any) -> Any:
    """The form alone; whether there is such a device, PyTorch has to say."""
    if not re.fullmatch(r"[a-z]+(:\d+)?", value):
        raise InputError(f"--device {value} cannot be used here: give auto, cpu, cuda, cuda:1 or mps.")
    return value


def engine(value: Any) -> Any:
    """The packages of the engine are looked for; they are not imported yet."""
    return check_engine(value)


def executor(value: Any) -> Any:
    """Ray is looked for; it is not imported yet."""
    if value == "ray":
        check_installed("ray", "cluster")
    return value


def _promise(check: Callable[[float], None]) -> Callable[[Any], Any]:
    """A check of a number that is part of what is promised."""

    def checked(value: Any) -> Any:
        if value is not None:
            check(value)
        return value

    return checked


alpha = _promise(promise.check_alpha)
confidence = _promise(promise.check_confidence)
fdr = _promise(promise.check_fdr)


def seconds(text: str) -> float:
    """The seconds of ``30d``: minutes (m), hours (h), days (d) or weeks (w)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", text)
    if match is None:
        raise InputError(f"--older-than {text}: give a number with m, h, d or w, such as 30d.")
    return float(match[1]) * {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}[match[2]]


def duration(value: Any) -> Any:
    if value is not None:
        seconds(value)
    return value


def cache_limit(value: Any) -> Any:
    from adascale.storage.entries import size_limit

    size_limit(value)
    return value


def numbers(option: str, text: str, kind: type) -> Any:
    """Numbers separated by commas; a single length in pixels, which is an int, stays a number."""
    try:
        values = tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--{option} {text}: give numbers separated by commas, such as 0.485,0.456,0.406.") from error
    return values[0] if kind is int and len(values) == 1 else values


def side(option: str) -> Callable[[Any], Any]:
    """A check of a length in pixels, or of HEIGHT,WIDTH."""

    def check(value: Any) -> Any:
        found = (1,) if value is None else numbers(option, value, int)
        found = found if isinstance(found, tuple) else (found,)
        if len(found) > 2 or min(found) < 1:
            raise InputError(f"--{option} {value}: give one length in pixels, or HEIGHT,WIDTH, each at least 1.")
        return value

    return check


def channels(option: str, above: float = float("-inf")) -> Callable[[Any], Any]:
    """A check of one value for each channel."""

    def check(value: Any) -> Any:
        found = (1.0,) if value is None else numbers(option, value, float)
        if len(found) not in (1, 3) or not all(above < one < float("inf") for one in found):
            rule = "" if above < 0 else f", each above {above:g}"
            raise InputError(f"--{option} {value}: give 3 values (RGB) or 1 (greyscale){rule}.")
        return value

    return check


def place(text: Any) -> Any:
    """The local path or the URL of a text."""
    return text if text is None else as_place(text)


def no_file(value: Any) -> Any:
    """A folder, or nothing yet."""
    if isinstance(value, Url):
        return value
    check_local(value, "this folder")
    if value is not None and value.exists() and not value.is_dir():
        raise InputError(f"{value} is a file; give a folder.")
    return value


def class_file(value: Any) -> Any:
    """A file of class names is read now, so that a mistake in it is told before any work."""
    if value is not None:
        class_names(value)
    return value


def folder(value: Any) -> Any:
    """A folder that results can be written to; it is made later."""
    return writable(no_file(value))


def writable(value: Any) -> Any:
    """A file or folder that can be written; folders on the way are made later."""
    if value is None:
        return value
    if isinstance(value, Url):
        value.check_writable()
        return value
    check_local(value, "this output")
    found = Path(value).absolute()
    if found.exists() and not os.access(found, os.W_OK):
        raise InputError(f"{value} cannot be written: this user may not change it.")
    while not found.exists():
        found = found.parent
    if found != Path(value).absolute() and not found.is_dir():
        raise InputError(f"{value} cannot be written: {found} is a file, not a folder.")
    if found.is_dir() and not os.access(found, os.W_OK | os.X_OK):
        raise InputError(f"{value} cannot be written: this user may not write in {found}.")
    return value


def rows_place(value: Any) -> Any:
    """A file for rows of results, or a folder for those of shards."""
    return rows_file(value) if value is not None and value.suffix.lower() in SUFFIXES else writable(value)


def rows_file(value: Any) -> Any:
    """A file for rows of results, in a format that its suffix names."""
    if value is not None and value.suffix.lower() not in SUFFIXES:
        raise InputError(f"The output {value} must end in {', '.join(SUFFIXES)}.")
    if isinstance(value, Path) and value.is_dir():
        raise InputError(f"The output {value} is a folder; name a file in it.")
    return writable(value)


def _existing(what: str, advice: str) -> Callable[[Any], Any]:
    """A check that a path, or each path of a list, exists. The text ``-`` stands for standard input."""

    def check(value: Any) -> Any:
        for path in value if isinstance(value, list | tuple) else [value]:
            if path in (None, "-"):
                continue
            if isinstance(path, Path):
                check_local(path, f"a {what}")
            if not present(expanded(path)[0]):  # what a glob matches is there
                raise InputError(f"There is no {what} {path}; {advice}.")
        return value

    return check


images = _existing("file or folder", ADVICE)
detector_files = _existing("detector file", "make one with adascale fit")
scores = _existing("file of scores", "make one with adascale score")
shards = _existing("folder", "give the -o of an adascale score --on run")
results = _existing("folder", "give the --out folder of an adascale bench run")
weights = _existing("weights file", "give a .safetensors file, or a .pth state dict")


def named_file(text: str) -> tuple[str, Place]:
    """The name and the file of ``NAME=FILE``; a file alone has its own name."""
    name, equals, file = text.partition("=")
    if not equals or is_url(text) or Path(text).exists():
        name, file = as_place(text).stem, text
    if not re.fullmatch(r"[\w.-]{1,64}", name):
        raise InputError(f"{text}: the name {name!r} has other characters than letters, digits, '.', '_' and '-'.")
    return name, as_place(file)


def served(value: Any) -> Any:
    """Detectors by distinct names."""
    found = [named_file(text) for text in value or []]
    detector_files([file for _, file in found])
    names = [name for name, _ in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"Two detectors have the name {twice[0]}; give NAME=FILE.")
    return value


def token_file(value: Any) -> Any:
    """A file with a token that is long enough."""
    if value is None:
        return value
    if not value.is_file():
        raise InputError(f"There is no token file {value}; write a long random text to it.")
    if len(value.read_text("utf8").strip()) < _SHORTEST_TOKEN:
        raise InputError(f"The token in {value} is shorter than {_SHORTEST_TOKEN} characters; take a longer one.")
    return value


def start(value: Any) -> Any:
    """Weights to start training from; ``pretrained`` stands for those of the network's source."""
    return value if value == "pretrained" else weights(value)


def export_file(value: Any) -> Any:
    """A file name whose suffix names a format of exported files."""
    format_of(value)
    return writable(value)
