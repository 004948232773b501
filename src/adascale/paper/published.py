"""The figures that the AdaSCALE paper publishes, to stand beside measured ones.

``data/figures.csv`` has FPR@95 and AUROC in percent, one line for each table, network, row, spectrum and kind of OOD
set; ``data/others.csv`` has all other values, such as microseconds. ``source`` names the table of the paper. Rows are
named as the studies name theirs. The network ``average`` is the paper's mean over all its networks on that data (on
CIFAR also over three training seeds). Where a table of the paper names no network, the network is the one whose
headline row the table repeats; the full-spectrum table fits no single network and counts as an average, and the
validation grid ``sensitivity_joint`` has the values and the level of ViT-B-16.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

from adascale.core.errors import InputError
from adascale.core.suggestions import meant
from adascale.detectors import PRESETS
from adascale.detectors.presets import known

AVERAGE = "average"
# Suites of the package on the paper's data: which data, and the suite that has every set of the paper's means.
SUITES = {
    "cifar10": ("cifar10", "cifar10"),
    "cifar100": ("cifar100", "cifar100"),
    "imagenet": ("imagenet", "imagenet-paper"),
    "imagenet-paper": ("imagenet", "imagenet-paper"),
}


class Place(NamedTuple):
    """The paper's names of a network and of its data, spelled as in the presets: ``imagenet``, ``resnet-50``."""

    data: str
    network: str

    def __str__(self) -> str:
        return f"{self.data}/{self.network}"


class Published(NamedTuple):
    """FPR@95 and AUROC of the paper in percent, and the network that they belong to, which may be ``average``."""

    fpr95: float | None
    auroc: float
    network: str


def place(text: str) -> Place:
    """The place that ``DATA/NETWORK`` of a preset names."""
    data, slash, network = text.partition("/")
    if not slash:
        raise InputError(f"The preset {text!r} names no network; give DATA/NETWORK, such as imagenet/resnet-50.")
    return Place(*known(data, network))


def paper_networks(data: str) -> list[str]:
    """The paper's networks on this data, which its averages are taken over."""
    return list(dict.fromkeys(network for _, known_data, network in PRESETS if known_data == data))


def figure(table: str, place: Place | None, row: str, kind: str, spectrum: str = "ood") -> Published | None:
    """The network's own figures, else the paper's average over networks; None where the paper has neither.

    For example:

        >>> figure("main", place("imagenet/resnet-50"), "scale", "near")
        Published(fpr95=67.76, auroc=74.2, network='resnet-50')
    """
    if place is None:
        return None
    figures = _by_key("figures", "table", "data", "network", "row", "spectrum", "kind")
    for network in (place.network, AVERAGE):
        if line := figures.get((table, place.data, network, row, spectrum, kind)):
            return Published(float(line["fpr95"]) if line["fpr95"] else None, float(line["auroc"]), network)
    return None


def other(table: str, place: Place | None, row: str, column: str) -> float | None:
    """A value of ``others.csv``; a value without a network holds for all networks."""
    others = _by_key("others", "table", "data", "network", "row", "column")
    line = others.get((table, *(place or ("", "")), row, column)) or others.get((table, "", "", row, column))
    return None if line is None else float(line["value"])


def check_study(name: str) -> str:
    """The name of a study. This needs no other module, so a typo is told at once."""
    names = [line["name"] for line in lines("studies")]
    if name not in names:
        raise InputError(f"There is no study {name!r}{meant(name, names)} Choose one of {', '.join(names)}, or all.")
    return name


@cache
def _by_key(name: str, *keys: str) -> dict[tuple[str, ...], dict[str, str]]:
    """The lines of a file by these columns."""
    return {tuple(line[key] for key in keys): line for line in lines(name)}


def lines(name: str) -> list[dict[str, str]]:
    """The lines of ``data/NAME.csv`` as they are in the file."""
    text = (resources.files("adascale") / "paper" / "data" / f"{name}.csv").read_text("utf8")
    return list(csv.DictReader(text.splitlines()))
