"""``adascale explain``."""

from __future__ import annotations

import json

from rich.console import Console

from adascale.cli.console import plain_table, say
from adascale.cli.explain_command import ExplainCommand
from adascale.cli.networks import named
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.decision.detector_file import DetectorFile
from adascale.decision.explaining import Explanation, as_values
from adascale.decision.ood_detector import OODDetector
from adascale.images.sources import find_images
from adascale.network.class_names import check_count, class_names
from adascale.network.ready import ready_network, usable_device

MOST = 8  # images on a page


def explain(given: ExplainCommand) -> None:
    """Print the numbers of each verdict, and write the page if one is asked for."""
    if given.output is not None:
        optional("matplotlib", "report")  # before the work, not after it
    found = find_images(given.images, given.root, given.max_pixels)
    if len(found) > MOST:
        raise InputError(f"{len(found)} images were given; explain takes up to {MOST}. Name the images themselves.")
    file = DetectorFile.read(given.detector)
    spec, weights = named(file, given)
    usable_device(given.device)
    classifier, _ = ready_network(spec, weights, given.device, engine=given.engine)
    detector = OODDetector.load(file, classifier, alpha=given.alpha, confidence=given.confidence)
    if given.classes is not None:
        detector.class_names = check_count(class_names(given.classes), len(classifier.head.weight))
    explained = [detector.explain(found.subset([i])) for i in range(len(found))]
    if given.output is not None:
        from adascale.showing.explain_page import write_page

        write_page(explained, detector, given.output)
        say(f"wrote {given.output}")
    if given.as_json:
        values = [as_values(one) for one in explained]
        print(json.dumps(values if len(values) > 1 else values[0]))
    else:
        for one in explained:
            _print(one)


def _print(found: Explanation) -> None:
    verdict = "out-of-distribution" if found.is_ood else "in-distribution"
    label = (
        f"; taken for {found.classes[0].label} ({100 * found.classes[0].probability:.1f} %)" if found.classes else ""
    )
    print(f"{found.name}: {verdict}, p-value {found.p_value:.4g}, score {found.score:.6g}{label}")
    table = plain_table("", "value", "how it comes about", "what it is")
    for step in found.steps:
        table.add_row(step.symbol, "" if step.value is None else f"{step.value:.9g}", step.formula, step.meaning)
    Console(highlight=False).print(table)
    print()
