"""A fitted detector as the exporter needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adascale.core.errors import InputError
from adascale.decision.detector_file import record_of
from adascale.export.graph import Fitted
from adascale.maths.conformal import Calibration

if TYPE_CHECKING:
    from adascale.decision.ood_detector import OODDetector


def exportable(detector: OODDetector, calibration: Calibration) -> Fitted:
    """The parts of the detector, if its inputs have one size."""
    if detector.input_shape is None:
        raise InputError(
            "This detector was fitted on images of several sizes; an exported file has one. Fit it on images of one "
            "size, or with a Preprocess that has a crop."
        )
    record = record_of(detector, calibration, detector.about)
    return Fitted(detector.classifier, detector.method, calibration, detector.input_shape, record, detector.preprocess)
