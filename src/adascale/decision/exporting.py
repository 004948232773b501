"""A fitted detector as the exporter needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adascale.core.errors import InputError
from adascale.decision.detector_file import record_of
from adascale.export.graph import Fitted
from adascale.export.proof import Pictures
from adascale.extraction.given import images_of
from adascale.images.pixels import READ_ERRORS
from adascale.images.preprocess import Preprocess
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


def pictures_of(source: Any, preprocess: Preprocess | None) -> list[Pictures]:
    """The images as pixels, each a batch (1, H, W, C) of its own; those that cannot be read are left out."""
    if source is None or preprocess is None:
        return []
    found = images_of(source, len(preprocess.mean))
    if found is None:
        raise InputError(
            "verify came as tensors, which have no pixels; with pixels=True give images (a folder, paths, ...)."
        )
    pictures = []
    for index in range(len(found)):
        try:
            pixels = np.asarray(preprocess.coloured(found.open(index)), dtype=np.uint8)
        except READ_ERRORS:
            continue  # the detector, which reads the same images, has warned of it
        pictures.append(pixels.reshape(1, *pixels.shape[:2], -1))
    return pictures
