"""The formats of exported files, by their suffixes. PyTorch is not needed here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from adascale.core.errors import InputError

Format = Literal["onnx", "openvino", "pt2"]
SUFFIXES: Mapping[str, Format] = {".onnx": "onnx", ".xml": "openvino", ".pt2": "pt2"}


def format_of(path: Path, given: str | None = None) -> Format:
    """The format that a file name stands for, or the one that was asked for."""
    found = SUFFIXES.get(path.suffix.lower())
    if given is not None and given not in SUFFIXES.values():
        raise InputError(f"format={given!r}; choose one of {', '.join(SUFFIXES.values())}.")
    if found is None or given not in (None, found):
        names = ", ".join(f"{suffix} ({name})" for suffix, name in SUFFIXES.items())
        wish = "" if given is None else f" for format={given!r}"
        raise InputError(f"The file {path.name} has no suffix{wish} that fits; use {names}.")
    return found
