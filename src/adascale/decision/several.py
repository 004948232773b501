"""Several detectors of one network, each under the name of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adascale.core.errors import DetectorFileError
from adascale.decision.detector_file import DetectorFile
from adascale.decision.ood_detector import OODDetector
from adascale.network.class_names import check_count, class_names
from adascale.network.classifier import Classifier


def load_columns(
    files: Sequence[DetectorFile],
    classifier: Classifier,
    alpha: float | None = None,
    confidence: float | None = None,
    no_confidence: bool = False,
    classes: str | Path | Sequence[str] | None = None,
) -> dict[str, OODDetector]:
    """The detectors by the names of their columns: the method's, or the file's where a method comes twice.

    no_confidence: promise ``alpha`` on average, though a detector was fitted with confidence. classes: names of the
    classes, or a file of them.
    """
    loaded = OODDetector.load_all(files, classifier, alpha=alpha, confidence=confidence)
    for detector in loaded if no_confidence else []:
        detector.confidence = None
    if classes is not None:
        names = check_count(class_names(classes), len(classifier.head.weight))
        for detector in loaded:
            detector.class_names = names
    if len({(detector.preprocess, detector.input_shape) for detector in loaded}) > 1:
        raise DetectorFileError("The detectors were fitted with different preprocessing; score them one by one.")
    columns = [detector.method.name for detector in loaded]
    if len(set(columns)) < len(columns):
        columns = [file.path.stem for file in files]
    if len(set(columns)) < len(columns):
        raise DetectorFileError("Two detectors of one method have the same file name; rename one, for the columns.")
    return dict(zip(columns, loaded, strict=True))
