"""Every method on the real networks and images of ADASCALE_DATA: the figures of docs/methods.md.

    python -m benchmarks.methods [NETWORK ...] [--scale 1.0] [--cache DIR]

Prints one Markdown table a network: FPR@95 / AUROC in percent, means over the near and the far sets. Extracted outputs
are kept in the cache folder, so a second run costs no network pass.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from adascale import Classifier, InputError, Outputs, Preprocess, View, detectors, load_network, metrics
from adascale.data import ImageSet, find_images
from adascale.jobs import extract_images, look_at_first

DATA = Path(os.environ.get("ADASCALE_DATA", Path(__file__).parents[2] / "shared" / "data"))
CIFAR_FAR = {"mnist32": 300, "textures32": 300, "sun_scenes32": 300, "svhn32_mini": 100}
# set -> (file, first row, rows); fit: unlabelled ID, train: labelled ID
SUITES: dict[str, dict[str, dict[str, tuple[str, int, int]]]] = {
    f"{name}_densenet101": {
        "fit": {name: (f"{name}_test", 0, 300)},
        "train": {name: (f"{name}_train", 0, 1000)},
        "id": {name: (f"{name}_test", 1000, 800)},
        "near": {other: (f"{other}_test", 0, 400), "tiny-imagenet classes": ("imagenet_tinyclasses32", 0, 400)},
        "far": {file: (file, 0, rows) for file, rows in CIFAR_FAR.items()},
    }
    for name, other in (("cifar10", "cifar100"), ("cifar100", "cifar10"))
}
SUITES["imagenet_resnet50"] = {
    "fit": {"calib": ("calib", 0, 200)},
    "train": {"calib": ("calib", 0, 200)},
    "id": {"val": ("val", 0, 300)},
    "near": {"ninco_caltech": ("ninco_caltech", 0, 197)},
    "far": {"textures": ("textures", 0, 200), "sun_nature": ("sun_nature", 0, 200)},
}
PRESETS = {
    "cifar10_densenet101": ("cifar10", "densenet-101"),
    "cifar100_densenet101": ("cifar100", "densenet-101"),
    "imagenet_resnet50": ("imagenet", "resnet-50"),
}


# LINe's own settings by data set, from its paper.
LINE = {"cifar10_densenet101": (90, 90, 1.0), "cifar100_densenet101": (90, 10, 1.0), "imagenet_resnet50": (10, 10, 0.8)}


def load_set(file: str, first: int, count: int) -> ImageSet:
    if (DATA / "cifar" / f"{file}.npz").is_file():
        with np.load(DATA / "cifar" / f"{file}.npz") as arrays:
            images = arrays["images"][first : first + count]
            labels = arrays["labels"][first : first + count].tolist() if "labels" in arrays.files else None
        return ImageSet([f"{file}[{first + i}]" for i in range(len(images))], array=images, labels=labels)
    found = find_images(DATA / "imagenet" / file)
    paths = found.paths[first : first + count]
    table = DATA / "imagenet" / f"{file}.csv"
    labels = None
    if table.is_file():
        with open(table, newline="") as lines:
            known = {row[0]: int(row[1]) for row in csv.reader(lines) if row[1].isdigit()}
        labels = [known[path.name] for path in paths]
    return ImageSet(found.names[first : first + count], paths, labels=labels)


def variants(network: str, preprocess: Preprocess) -> Iterator[tuple[str, detectors.Detector]]:
    """Every method at its default, and AdaSCALE at the paper's preset for the network."""
    for cls in detectors.ALL:
        if cls.name in ("adascale_a", "adascale_l"):
            parameters = detectors.preset(cls.name, *PRESETS[network])
            yield f"{cls.name}, preset {parameters['p_min']}/{parameters['p_max']}", cls(**parameters)
        if cls is detectors.LINe:
            yield cls.name, detectors.LINe(*LINE[network])
            continue
        yield cls.name, cls().for_input(preprocess.std)


def measure(network: str, scale: float, cache: Path) -> None:
    model, preprocess = load_network(f"{DATA / 'networks.py'}:{network}")
    if preprocess is None:
        raise InputError(f"{network} comes without preprocessing.")
    classifier = Classifier(model)
    chosen = list(variants(network, preprocess))
    views = list(dict.fromkeys(view for _, detector in chosen for view in detector.views))
    outputs: dict[str, dict[str, Outputs]] = {}
    for role, sets in SUITES[network].items():
        for name, (file, first, count) in sets.items():
            images = load_set(file, first, max(20, int(count * scale)))
            look_at_first(classifier, images, preprocess)
            needed: list[View] = [] if role == "train" else views
            folder = cache / network / f"{role}-{file}"
            found, _ = extract_images(classifier, images, preprocess, needed, folder, title=f"{network} {role} {name}")
            outputs.setdefault(role, {})[name] = found
    sizes = {role: {name: len(found) for name, found in sets.items()} for role, sets in outputs.items()}
    print(f"\n### {network}\n\nImages: {sizes}\n")
    print("| method | fitted on | near FPR@95 / AUROC | far FPR@95 / AUROC |\n|---|---|---|---|")
    fit, train, known = (next(iter(outputs[role].values())) for role in ("fit", "train", "id"))
    for label, detector in chosen:
        try:
            detector.fit(train if detector.fits_on.startswith("train") else fit, classifier.head)
        except InputError as error:
            print(f"| {label} | {detector.fits_on} | - | {error} |")
            continue
        scores, cells = detector.score(known), []
        for side in ("near", "far"):
            figures = [metrics.evaluate(scores, detector.score(found)) for found in outputs[side].values()]
            fpr, auroc = (100 * sum(getattr(f, k) for f in figures) / len(figures) for k in ("fpr95", "auroc"))
            cells.append(f"{fpr:.2f} / {auroc:.2f}")
        print(f"| {label} | {detector.fits_on} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(SUITES))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the images")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "adascale-methods")
    arguments = parser.parse_args()
    for network in arguments.networks:
        measure(network, arguments.scale, arguments.cache)


if __name__ == "__main__":
    main()
