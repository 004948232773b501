"""``adascale export``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from adascale.cli.commands import ExportCommand
from adascale.cli.console import say
from adascale.cli.networks import named
from adascale.decision.detector_file import DetectorFile
from adascale.decision.ood_detector import OODDetector
from adascale.export.engines import read_record
from adascale.images.sources import find_images
from adascale.network.ready import ready_network


def export(given: ExportCommand) -> None:
    """Load the detector with its network, write the file, and print the proof."""
    file = DetectorFile.read(given.detector)
    spec, weights = named(file, given)
    verify, int8 = (_items(part, given) for part in (given.verify, given.int8))
    classifier, _ = ready_network(spec, weights, "cpu")
    detector = OODDetector.load(file, classifier, alpha=given.alpha, confidence=given.confidence)
    say(f"exporting {detector.method.name} with {spec} ...")
    proof = detector.export(
        given.output, format=given.format, verify=verify, early=given.early, pixels=given.pixels, int8=int8
    )
    promise = read_record(given.output)["calibration"]["guarantee"]  # int8 has a calibration of its own
    if given.as_json:
        print(json.dumps({"file": str(given.output), "proof": asdict(proof), "guarantee": promise}))
    else:
        print(f"{given.output}: {proof}\n{promise}")


def _items(places: list[str] | None, given: ExportCommand) -> list[Any] | None:
    """The images of these places."""
    if not places:
        return None
    found = find_images(places, given.root, given.max_pixels)
    return [found.item(i) for i in range(len(found))]
