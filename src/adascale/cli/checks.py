"""Values of options that are refused before any work, and before PyTorch is imported. A check returns its value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from adascale.bench import check_suite
from adascale.bench.columns import IN_REGISTRY, named
from adascale.core.errors import InputError


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


def known_columns(value: Any) -> Any:
    column_names(value)
    return value


def folder(value: Any) -> Any:
    if value is not None and value.exists() and not value.is_dir():
        raise InputError(f"{value} is a file; give a folder.")
    return value


def _existing(what: str, advice: str) -> Callable[[Any], Any]:
    """A check that a path, or each path of a list, exists. The text ``-`` stands for a list on stdin."""

    def check(value: Any) -> Any:
        for path in value if isinstance(value, list) else [value]:
            if path not in (None, "-") and not Path(path).exists():
                raise InputError(f"There is no {what} {path}; {advice}.")
        return value

    return check


images = _existing("file or folder", "give a folder, an image, an image list or an .npz")
detector_files = _existing("detector file", "make one with adascale fit")
results = _existing("folder", "give the --out folder of an adascale bench run")
