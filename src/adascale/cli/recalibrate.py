"""``adascale recalibrate``."""

from __future__ import annotations

import json

from adascale.cli.commands import RecalibrateCommand
from adascale.cli.console import end, say
from adascale.cli.fit import source_of
from adascale.cli.networks import named
from adascale.decision.detector_file import DetectorFile
from adascale.decision.ood_detector import OODDetector
from adascale.images.sources import find_images
from adascale.network.ready import ready_network, usable_device


def recalibrate(given: RecalibrateCommand) -> None:
    """Load the detector with its network, add the images, and write the detector with its new threshold."""
    file, found = DetectorFile.read(given.detector), find_images(given.images, given.root)
    spec, weights = named(file, given.model, given.weights)
    usable_device(given.device)
    classifier, _ = ready_network(spec, weights, given.device, engine=given.engine)
    detector = OODDetector.load(file, classifier)
    before, detector.batch_size = detector.threshold, given.batch_size
    detector.recalibrate(found, replace=given.replace, source=source_of(given.images))
    output, added = given.output or given.detector, detector.audit[-1]
    record = detector.save(output)
    if given.as_json:
        print(json.dumps({**record, "file": str(output), "threshold_before": before}))
    else:
        print(f"{output}: {added}\nthreshold {before:.6g} -> {detector.threshold:.6g}\n{detector.guarantee}")
    say("The promise holds for images that are exchangeable with all calibration images together (docs/monitoring.md).")
    known = {name for one in detector.audit for name in one.names}
    end(sum(name not in known for name in found.names), len(found))
