"""Rich displays of types that live below the room that draws them."""

from __future__ import annotations

import importlib
from typing import Any

_HOME = "adascale.showing.displays"


def drawn(what: str, *given: Any, **options: Any) -> Any:
    """What the function of this name in the room `showing` makes of it.

    It is found by its name when a notebook asks for it: a `Verdict` can show itself, and computing one needs neither
    HTML nor matplotlib.
    """
    return getattr(importlib.import_module(_HOME), what)(*given, **options)
