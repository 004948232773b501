"""Values of options that are refused before any work, and before PyTorch is imported. A check returns its value."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from adascale.bench import SUITES
from adascale.core.errors import InputError

Value = TypeVar("Value")
PathOrNone = TypeVar("PathOrNone", Path, Path | None)


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


def methods(value: Value) -> Value:
    method_names([value] if isinstance(value, str) else value or [])  # type: ignore[arg-type]
    return value


def images(value: str | None) -> str | None:
    if value not in (None, "-"):
        _exists(Path(str(value)), "file or folder", "give a folder, an image, an image list or an .npz")
    return value


def detector_file(value: Path) -> Path:
    return _exists(value, "detector file", "make one with adascale fit")


def detector_files(value: list[Path]) -> list[Path]:
    return list(map(detector_file, value))


def results(value: Path) -> Path:
    return _exists(value, "folder", "give the --out folder of an adascale bench run")


def folder(value: PathOrNone) -> PathOrNone:
    if value is not None and value.exists() and not value.is_dir():
        raise InputError(f"{value} is a file; give a folder.")
    return value


def suite(value: str | None) -> str | None:
    if value is not None and value not in SUITES:
        from adascale.bench.suites import load_suite

        load_suite(value)
    return value


def _exists(path: Path, what: str, advice: str) -> Path:
    if not path.exists():
        raise InputError(f"There is no {what} {path}; {advice}.")
    return path
