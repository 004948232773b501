"""The methods: one paper, one file. `get` finds any of them by name, ``ALL`` holds ours.

Classes are imported when they are first used, so that the list of methods can be shown without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adascale.detectors.presets import PRESETS, PROVENANCE, preset
from adascale.detectors.registry import OURS, get, names, ours, register

if TYPE_CHECKING:  # for type checkers alone; the registry is what counts
    from adascale.detectors.adascale import ActivationShift, AdaSCALE_A, AdaSCALE_L
    from adascale.detectors.ash import ASH_B, ASH_P, ASH_S
    from adascale.detectors.base import Detector
    from adascale.detectors.bfact import BFAct
    from adascale.detectors.dice import DICE
    from adascale.detectors.ebo import EBO
    from adascale.detectors.fdbd import FDBD
    from adascale.detectors.gen import GEN
    from adascale.detectors.gradnorm import GradNorm
    from adascale.detectors.klm import KLM
    from adascale.detectors.knn import KNN
    from adascale.detectors.line import LINe
    from adascale.detectors.lts import LTS
    from adascale.detectors.mds import MDS
    from adascale.detectors.mls import MLS
    from adascale.detectors.msp import MSP
    from adascale.detectors.nci import NCI
    from adascale.detectors.nnguide import NNGuide
    from adascale.detectors.odin import ODIN
    from adascale.detectors.optfs import OptFS
    from adascale.detectors.react import ReAct
    from adascale.detectors.relation import Relation
    from adascale.detectors.rmds import RMDS
    from adascale.detectors.scale import SCALE
    from adascale.detectors.she import SHE
    from adascale.detectors.vim import Residual, ViM
    from adascale.detectors.vra import VRA

    ALL: tuple[type[Detector], ...]

__all__ = [
    "ALL",
    "ASH_B",
    "ASH_P",
    "ASH_S",
    "DICE",
    "EBO",
    "FDBD",
    "GEN",
    "KLM",
    "KNN",
    "LTS",
    "MDS",
    "MLS",
    "MSP",
    "NCI",
    "ODIN",
    "PRESETS",
    "PROVENANCE",
    "RMDS",
    "SCALE",
    "SHE",
    "VRA",
    "ActivationShift",
    "AdaSCALE_A",
    "AdaSCALE_L",
    "BFAct",
    "Detector",
    "GradNorm",
    "LINe",
    "NNGuide",
    "OptFS",
    "ReAct",
    "Relation",
    "Residual",
    "ViM",
    "get",
    "names",
    "preset",
    "register",
]

_CLASSES = {place.partition(":")[2]: name for name, place in OURS.items()}


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
