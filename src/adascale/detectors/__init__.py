"""Every method, one paper a file. ``ALL`` is the registry."""

from __future__ import annotations

from adascale.detectors.adascale import ActivationShift, AdaSCALE_A, AdaSCALE_L
from adascale.detectors.base import Detector
from adascale.detectors.ebo import EBO
from adascale.detectors.lts import LTS
from adascale.detectors.mls import MLS
from adascale.detectors.msp import MSP
from adascale.detectors.presets import PRESETS, preset
from adascale.detectors.scale import SCALE
from adascale.errors import InputError

__all__ = [
    "ALL",
    "EBO",
    "LTS",
    "MLS",
    "MSP",
    "PRESETS",
    "SCALE",
    "ActivationShift",
    "AdaSCALE_A",
    "AdaSCALE_L",
    "Detector",
    "get",
    "preset",
]

ALL: tuple[type[Detector], ...] = (AdaSCALE_A, AdaSCALE_L, SCALE, LTS, MSP, MLS, EBO, ActivationShift)


def get(name: str) -> type[Detector]:
    """The detector class of this name, e.g. ``get("scale")(percentile=85)``."""
    for cls in ALL:
        if cls.name == name:
            return cls
    raise InputError(f"There is no method {name!r}; choose one of {', '.join(cls.name for cls in ALL)}.")
