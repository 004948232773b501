"""Methods in words, for ``adascale methods``."""

from __future__ import annotations

from inspect import getdoc
from typing import Any

from adascale.detectors import Detector
from adascale.detectors.base import COSTS, SIGNED_FEATURES

FITTED_ON = {
    "nothing": "nothing",
    "val": "a few ID images",
    "train": "training images",
    "train+labels": "training images, labels",
}


def described(cls: type[Detector]) -> dict[str, Any]:
    """What a method is, needs and can be set to, as data."""
    detector = cls()
    passes = 1 + len(detector.views)
    gradients = sum(view.needs_gradient for view in detector.views)
    return {
        "name": cls.name,
        "summary": cls.summary,
        "fitted_on": FITTED_ON[cls.fits_on],
        "passes": f"{passes} forward" + (f", {gradients} backward" if gradients else ""),
        "cost": cls.cost,
        "signed_features": cls.signed_features,
        "parameters": detector.parameters,
        "search_space": cls.search_space,
    }


def in_full(cls: type[Detector]) -> str:
    """The same for people, with the formula."""
    texts = [doc for part in (cls, *cls.__bases__) if part is not Detector and (doc := getdoc(part))]
    lines = [f"{name} = {value}{_grid(cls, name)}" for name, value in cls().parameters.items()]
    row = described(cls)
    needs = [
        f"Fitted on: {row['fitted_on']}",
        f"Network passes: {row['passes']}",
        f"Cost besides: {cls.cost}, {COSTS[cls.cost]}",
        f"Signed features: {SIGNED_FEATURES[cls.signed_features]}",
        "Parameters: " + ("; ".join(lines) or "none"),
    ]
    return "\n\n".join([cls.name, *texts, "\n".join(needs)])


def _grid(cls: type[Detector], name: str) -> str:
    return f" (searched: {', '.join(map(str, cls.search_space[name]))})" if name in cls.search_space else ""
