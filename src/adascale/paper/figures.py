"""The figures of the AdaSCALE paper, to stand beside measured ones.

``data/figures.csv``: FPR@95 and AUROC in percent, one line for each table, network, row, spectrum and kind of OOD
set; ``others.csv``: what is neither, such as microseconds. ``source`` names the table of the paper. Rows have the names
that the studies give theirs. ``average``: the paper's mean over all its networks on that data (on CIFAR also over three
training seeds). Where a table of the paper names no network, it is the one whose headline row the table repeats; the
full-spectrum table fits no single network and counts as an average, and the validation grid ``sensitivity_joint`` has
the values and the level of ViT-B-16.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

from adascale.core.errors import InputError
from adascale.detectors import PRESETS
from adascale.detectors.presets import known

AVERAGE = "average"
# Suites of the package with data of the paper: which data, and the suite that has all the sets of the paper's means.
SUITES = {
    "cifar10": ("cifar10", "cifar10"),
    "cifar100": ("cifar100", "cifar100"),
    "imagenet": ("imagenet", "imagenet-paper"),
    "imagenet-paper": ("imagenet", "imagenet-paper"),
}


class Place(NamedTuple):
    """What the paper calls a network and the data it knows, as the presets do: ``imagenet``, ``resnet-50``."""

    data: str
    network: str

    def __str__(self) -> str:
        return f"{self.data}/{self.network}"


class Figure(NamedTuple):
    """A pair of the paper in percent, and the network it is of, which may be ``average``."""

    fpr95: float | None
    auroc: float
    network: str


def place(text: str) -> Place:
    """``DATA/NETWORK`` of a preset."""
    data, slash, network = text.partition("/")
    if not slash:
        raise InputError(f"--preset {text}: give DATA/NETWORK, such as imagenet/resnet-50.")
    return Place(*known(data, network))


def networks(data: str) -> list[str]:
    """The paper's networks on this data: those that its averages are over."""
    return list(dict.fromkeys(network for _, known_data, network in PRESETS if known_data == data))


def figure(table: str, place: Place | None, row: str, kind: str, spectrum: str = "ood") -> Figure | None:
    """The network's own figure, else the average over networks that it is one of; None where the paper has neither."""
    for network in () if place is None else dict.fromkeys((place.network, AVERAGE)):
        assert place is not None
        found = _figures().get((table, place.data, network, row, spectrum, kind))
        if found is not None:
            return Figure(*found, network)
    return None


def other(table: str, place: Place | None, row: str, column: str) -> float | None:
    """A value of ``others.csv``; those without a network hold for all."""
    data, network = place or ("", "")
    values = _others()
    return values.get((table, data, network, row, column), values.get((table, "", "", row, column)))


@cache
def _figures() -> dict[tuple[str, ...], tuple[float | None, float]]:
    return {
        tuple(line[name] for name in ("table", "data", "network", "row", "spectrum", "kind")): (
            float(line["fpr95"]) if line["fpr95"] else None,
            float(line["auroc"]),
        )
        for line in lines("figures")
    }


@cache
def _others() -> dict[tuple[str, ...], float]:
    names = ("table", "data", "network", "row", "column")
    return {tuple(line[name] for name in names): float(line["value"]) for line in lines("others")}


def lines(name: str) -> list[dict[str, str]]:
    """The lines of ``figures`` or ``others`` as they are in the file."""
    text = (resources.files("adascale") / "paper" / "data" / f"{name}.csv").read_text("utf8")
    return list(csv.DictReader(text.splitlines()))
