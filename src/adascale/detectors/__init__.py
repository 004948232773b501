"""The methods: one paper, one file. `get` finds any of them by name, ``ALL`` holds ours.

Classes are imported when they are first used, so that the list of methods can be shown without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adascale.detectors.presets import PRESETS, PROVENANCE, preset
from adascale.detectors.registry import OURS, get, names, ours, register

if TYPE_CHECKING:  # for type checkers alone; the registry is what counts
    from adascale.detectors.adascale import ActivationShift as ActivationShift
    from adascale.detectors.adascale import AdaSCALE_A as AdaSCALE_A
    from adascale.detectors.adascale import AdaSCALE_L as AdaSCALE_L
    from adascale.detectors.ash import ASH_B as ASH_B
    from adascale.detectors.ash import ASH_P as ASH_P
    from adascale.detectors.ash import ASH_S as ASH_S
    from adascale.detectors.base import Detector as Detector
    from adascale.detectors.bfact import BFAct as BFAct
    from adascale.detectors.dice import DICE as DICE
    from adascale.detectors.ebo import EBO as EBO
    from adascale.detectors.fdbd import FDBD as FDBD
    from adascale.detectors.gen import GEN as GEN
    from adascale.detectors.gradnorm import GradNorm as GradNorm
    from adascale.detectors.klm import KLM as KLM
    from adascale.detectors.knn import KNN as KNN
    from adascale.detectors.line import LINe as LINe
    from adascale.detectors.lts import LTS as LTS
    from adascale.detectors.mds import MDS as MDS
    from adascale.detectors.mls import MLS as MLS
    from adascale.detectors.msp import MSP as MSP
    from adascale.detectors.nci import NCI as NCI
    from adascale.detectors.nnguide import NNGuide as NNGuide
    from adascale.detectors.odin import ODIN as ODIN
    from adascale.detectors.optfs import OptFS as OptFS
    from adascale.detectors.react import ReAct as ReAct
    from adascale.detectors.relation import Relation as Relation
    from adascale.detectors.rmds import RMDS as RMDS
    from adascale.detectors.scale import SCALE as SCALE
    from adascale.detectors.she import SHE as SHE
    from adascale.detectors.vim import Residual as Residual
    from adascale.detectors.vim import ViM as ViM
    from adascale.detectors.vra import VRA as VRA

    ALL: tuple[type[Detector], ...]

__all__ = ["ALL", "PRESETS", "PROVENANCE", "Detector", "get", "names", "preset", "register"]
_CLASSES = {place.partition(":")[2]: name for name, place in OURS.items()}
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
