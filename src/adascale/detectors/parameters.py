"""The parameters of methods: a field's declared type, and its range where it has one, checked in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, field, fields
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from adascale.core.errors import InputError


def number(
    default: Any, *, least: float | None = None, above: float | None = None, most: float | None = None, kind: str = ""
) -> Any:
    """A dataclass field for a number within these bounds; ``kind`` replaces "a finite number" in the message."""
    return field(default=default, metadata={"least": least, "above": above, "most": most, "kind": kind})


def percent(default: float | None, *, above: float | None = None) -> Any:
    """A dataclass field for a percentage, from 0 (or above another value) to 100."""
    return number(default, least=0 if above is None else None, above=above, most=100, kind="a percentage")


def check(method: Any) -> None:
    """Refuse a parameter that is not of its declared type or outside its range. Lists become tuples where declared."""
    cls: Any = type(method)
    declared = _declared(cls)
    for one in fields(method):
        value, types = getattr(method, one.name), declared.get(one.name, ())
        if isinstance(value, list) and any(get_origin(kind) is tuple for kind in types):
            value = tuple(value)  # as JSON files store them
            setattr(method, one.name, value)
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, int) and entry.bit_length() > 63:  # arithmetic with such a number overflows
                raise InputError(f"{one.name} has {entry.bit_length()} bits; whole numbers must be below 2**63.")
        right = not types or any(_is_of(value, kind) for kind in types)
        if not (right and (value is None or _within(value, one.metadata))):
            raise InputError(f"{one.name}={value!r}; {_rule(one, types)}.")


@cache
def _declared(cls: Any) -> Mapping[str, tuple[Any, ...]]:
    """The types that each field may have; none for annotations that cannot be resolved."""
    try:
        hints = get_type_hints(cls)
    except Exception:  # names that exist for type checkers alone, or inside a function
        return {}
    return {
        name: get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        for name, hint in hints.items()
        if hint is not Any
    }


def _is_of(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        return isinstance(value, tuple) and all(_is_of(entry, get_args(kind)[0]) for entry in value)
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    plain = get_origin(kind) or kind
    return isinstance(value, plain) if isinstance(plain, type) else True


def _within(value: Any, bounds: Mapping[str, Any]) -> bool:
    least, above, most = (bounds.get(name) for name in ("least", "above", "most"))
    return (least is None or value >= least) and (above is None or value > above) and (most is None or value <= most)


_KINDS: Mapping[Any, str] = {
    float: "a finite number",
    int: "a whole number",
    bool: "True or False",
    str: "a text",
    NoneType: "None",
    tuple[float, ...]: "a tuple of numbers",
}


def _rule(one: Field[Any], types: tuple[Any, ...]) -> str:
    """What a field asks for, in words."""
    if choices := [str(choice) for kind in types if get_origin(kind) is Literal for choice in get_args(kind)]:
        return f"choose one of {', '.join(choices)}"
    names = [_KINDS.get(kind, str(getattr(kind, "__name__", kind))) for kind in types]
    names[0:1] = [one.metadata.get("kind") or (names[0] if names else "a number")]
    least, above, most = (one.metadata.get(name) for name in ("least", "above", "most"))
    parts = [f"above {above:g}"] if above is not None else [f"at least {least:g}"] if least is not None else []
    parts += [f"at most {most:g}"] if most is not None else []
    bounds = f" from {least:g} to {most:g}" if least is not None and most is not None else f" {' and '.join(parts)}"
    return f"it must be {names[0]}{bounds.rstrip()}{' or None' if 'None' in names[1:] else ''}"
