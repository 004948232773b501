"""Values of options that are refused before any work, and before PyTorch is imported. A check returns its value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from adascale.bench import check_suite
from adascale.core.errors import InputError
from adascale.images.places import ADVICE, expanded
from adascale.maths import promise
from adascale.network.class_names import class_names


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


def folder(value: Any) -> Any:
    if value is not None and value.exists() and not value.is_dir():
        raise InputError(f"{value} is a file; give a folder.")
    return value


def class_file(value: Any) -> Any:
    """A file of class names is read now, so that a mistake in it is told before any work."""
    if value is not None:
        class_names(value)
    return value


def _existing(what: str, advice: str) -> Callable[[Any], Any]:
    """A check that a path, or each path of a list, exists. The text ``-`` stands for standard input."""

    def check(value: Any) -> Any:
        for path in value if isinstance(value, list) else [value]:
            if path not in (None, "-") and not all(Path(one).exists() for one in expanded(path)):
                raise InputError(f"There is no {what} {path}; {advice}.")
        return value

    return check


images = _existing("file or folder", ADVICE)
detector_files = _existing("detector file", "make one with adascale fit")
results = _existing("folder", "give the --out folder of an adascale bench run")
