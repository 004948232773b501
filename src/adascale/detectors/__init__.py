"""Every method, one paper a file. ``ALL`` is the registry."""

from __future__ import annotations

from adascale.core.errors import InputError
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
from adascale.detectors.presets import PRESETS, PROVENANCE, preset
from adascale.detectors.react import ReAct
from adascale.detectors.relation import Relation
from adascale.detectors.rmds import RMDS
from adascale.detectors.scale import SCALE
from adascale.detectors.she import SHE
from adascale.detectors.vim import Residual, ViM
from adascale.detectors.vra import VRA

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
    "preset",
]

ALL: tuple[type[Detector], ...] = (
    *(AdaSCALE_A, AdaSCALE_L, SCALE, LTS),
    *(MSP, MLS, EBO, ODIN, GEN, GradNorm),
    *(ReAct, ASH_P, ASH_B, ASH_S, BFAct, VRA, OptFS, DICE, LINe),
    *(NNGuide, KNN, MDS, RMDS, ViM, Residual),
    *(KLM, SHE, FDBD, NCI, Relation),
    ActivationShift,
)


def get(name: str) -> type[Detector]:
    """The detector class of this name, e.g. ``get("scale")(percentile=85)``."""
    for cls in ALL:
        if cls.name == name:
            return cls
    raise InputError(f"There is no method {name!r}; choose one of {', '.join(cls.name for cls in ALL)}.")
