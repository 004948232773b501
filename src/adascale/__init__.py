"""adascale: tells when an image classifier is looking at something it was never trained on.

Public names are imported when they are first used, so that ``import adascale`` and ``adascale --help`` do not wait for
PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from adascale.core.version import __version__

if TYPE_CHECKING:
    from adascale import detectors, metrics, testing
    from adascale.core.answers import Decision, Verdict
    from adascale.core.errors import (
        AdascaleError,
        AdascaleWarning,
        DetectorFileError,
        HeadNotFoundError,
        InputError,
        MissingExtraError,
        NotFittedError,
    )
    from adascale.core.shards import Shards
    from adascale.core.types import Head, Outputs, Tap, View
    from adascale.decision.ood_detector import OODDetector
    from adascale.detectors import Detector
    from adascale.detectors.learning import fit_shards
    from adascale.export.exported import load_exported
    from adascale.extraction.extract import extract, extract_batch
    from adascale.images.preprocess import Preprocess
    from adascale.maths.conformal import Calibration
    from adascale.network.classifier import Classifier
    from adascale.network.loading import load_network

__all__ = [
    "AdascaleError",
    "AdascaleWarning",
    "Calibration",
    "Classifier",
    "Decision",
    "Detector",
    "DetectorFileError",
    "Head",
    "HeadNotFoundError",
    "InputError",
    "MissingExtraError",
    "NotFittedError",
    "OODDetector",
    "Outputs",
    "Preprocess",
    "Shards",
    "Tap",
    "Verdict",
    "View",
    "__version__",
    "detectors",
    "extract",
    "extract_batch",
    "fit_shards",
    "load_exported",
    "load_network",
    "metrics",
    "testing",
]

_HOMES = {
    "core.answers": ("Decision", "Verdict"),
    "core.errors": tuple(name for name in __all__ if name.endswith(("Error", "Warning"))),
    "core.shards": ("Shards",),
    "core.types": ("Head", "Outputs", "Tap", "View"),
    "decision.ood_detector": ("OODDetector",),
    "detectors": ("Detector",),
    "detectors.learning": ("fit_shards",),
    "export.exported": ("load_exported",),
    "extraction.extract": ("extract", "extract_batch"),
    "images.preprocess": ("Preprocess",),
    "maths.conformal": ("Calibration",),
    "network.classifier": ("Classifier",),
    "network.loading": ("load_network",),
}


def __getattr__(name: str) -> Any:
    if name in ("detectors", "metrics", "testing"):
        return importlib.import_module(f"adascale.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"adascale.{home}"), name)
    raise AttributeError(f"module 'adascale' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
