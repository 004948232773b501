"""``adascale export``."""

from __future__ import annotations

import json
from dataclasses import asdict

from adascale.cli.commands import ExportCommand
from adascale.cli.console import say
from adascale.cli.networks import named
from adascale.decision.detector_file import DetectorFile
from adascale.decision.ood_detector import OODDetector
from adascale.images.sources import find_images
from adascale.network.ready import ready_network


def export(given: ExportCommand) -> None:
    """Load the detector with its network, write the file, and print the proof."""
    file = DetectorFile.read(given.detector)
    spec, weights = named(file, given.model, given.weights)
    verify = find_images(given.verify, given.root) if given.verify else None
    classifier, _ = ready_network(spec, weights, "cpu")
    detector = OODDetector.load(file, classifier, alpha=given.alpha, confidence=given.confidence)
    say(f"exporting {detector.method.name} with {spec} ...")
    images = None if verify is None else [verify.item(i) for i in range(len(verify))]
    proof = detector.export(given.output, format=given.format, verify=images, early=given.early)
    if given.as_json:
        print(json.dumps({"file": str(given.output), "proof": asdict(proof)}))
    else:
        print(f"{given.output}: {proof}\n{detector.guarantee}")
