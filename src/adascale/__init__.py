"""adascale: tells when an image classifier is looking at something it was never trained on."""

from adascale import detectors, metrics, testing
from adascale.calibrate import Calibration
from adascale.data import Preprocess
from adascale.detector import OODDetector
from adascale.detectors import Detector
from adascale.errors import (
    AdascaleError,
    AdascaleWarning,
    DetectorFileError,
    HeadNotFoundError,
    InputError,
    MissingExtraError,
    NotFittedError,
)
from adascale.extract import extract, extract_batch
from adascale.model import Classifier
from adascale.specs import load_network
from adascale.types import Decision, Head, Outputs, Verdict, View
from adascale.version import __version__

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
    "Verdict",
    "View",
    "__version__",
    "detectors",
    "extract",
    "extract_batch",
    "load_network",
    "metrics",
    "testing",
]
