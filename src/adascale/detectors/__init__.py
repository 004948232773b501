"""The methods: one paper, one file. `get` finds any of them by name, ``ALL`` holds ours.

Classes are imported when they are first used, so that the list of methods can be shown without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adascale.detectors.presets import PRESETS, PROVENANCE, preset
from adascale.detectors.registry import OURS, get, names, ours, register

if TYPE_CHECKING:
    from adascale.detectors.base import Detector as Detector

    ALL: tuple[type[Detector], ...]

_CLASSES = {place.partition(":")[2]: name for name, place in OURS.items()}
__all__ = ["ALL", "PRESETS", "PROVENANCE", "Detector", "get", "names", "preset", "register"]
__all__ += _CLASSES
__all__.sort(key=lambda name: (not name.isupper(), name[0].islower(), name))


def __getattr__(name: str) -> Any:
    if name == "ALL":
        return tuple(map(ours, OURS))
    if name == "Detector":
        from adascale.detectors.base import Detector

        return Detector
    if name in _CLASSES:
        return ours(_CLASSES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
