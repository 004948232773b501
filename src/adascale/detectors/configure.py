"""From a method's name and parameters to the configured method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from adascale.core.errors import InputError
from adascale.core.suggestions import meant
from adascale.detectors.base import Detector
from adascale.detectors.registry import get


def configured(method: str | type[Detector], parameters: Mapping[str, Any]) -> Detector:
    """The method of this name or class, with these parameters in place of its defaults."""
    cls = get(method) if isinstance(method, str) else method
    known = sorted(field.name for field in fields(cls))
    if unknown := [name for name in parameters if name not in known]:
        hint = meant(unknown[0], known)
        raise InputError(f"{cls.name} has no parameter {unknown[0]!r}{hint} It has: {', '.join(known) or 'none'}.")
    return cls(**parameters)
