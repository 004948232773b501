"""Which known network some weights belong to, told by the names and shapes of their tensors.

``data/families.csv`` has a signature for every classifier of torchvision, timm and this package; ``python -m
benchmarks.families`` makes it. So no network has to be built to recognise weights, and no package has to be there.
The head is left out of a signature: fine-tuned weights have other classes, and often another head.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

HEADS = ("classifier", "fc", "head", "head_dist", "heads", "last_linear")  # where a network keeps its last layers
_MOST_NAMES = 3
# Hugging Face networks begin every key of their body with the name of the architecture.
_HUGGING_FACE = "beit convnext convnextv2 data2vec_vision deit dinov2 levit mobilenet_v2 mobilevit pvt regnet resnet "
_HUGGING_FACE += "segformer swin swinv2 vit"

Shapes = Mapping[str, Sequence[int]]


class Signature(NamedTuple):
    """Hashes of the names, and of the names with the shapes."""

    names: str
    shapes: str


class Family(NamedTuple):
    """A known network. source: ``torchvision``, ``timm`` or ``adascale``."""

    source: str
    name: str
    signature: Signature


def signature(shapes: Shapes) -> Signature:
    """The signature of a network's body."""
    kept = sorted(key for key in shapes if key.partition(".")[0] not in HEADS and "num_batches" not in key)
    return Signature(_hash(kept), _hash(f"{key} {tuple(shapes[key])}" for key in kept))


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def looks_like(shapes: Shapes) -> str:
    """What these weights look like, as the end of a sentence; empty if they are of no known network."""
    for prefix in ("", _common_prefix(shapes)):
        own = signature({key.removeprefix(prefix): shape for key, shape in shapes.items()})
        under = f" under the prefix {prefix!r}" if prefix else ""
        if found := [family for family in known() if family.signature.shapes == own.shapes]:
            return f"these look like {_listed(found)}{under}"
        if found := [family for family in known() if family.signature.names == own.names]:
            return f"these have the layers of {_listed(found)} in other sizes{under}"
    first = next(iter(shapes), "").partition(".")[0]
    if first in _HUGGING_FACE.split() and any(key.startswith("classifier.") for key in shapes):
        return f"these look like a {first} of Hugging Face (hf:FOLDER)"
    return ""


def _listed(found: Sequence[Family]) -> str:
    shown = [f"{family.source} {family.name}" for family in found[:_MOST_NAMES]]
    more = [f"{len(found) - _MOST_NAMES} others"] if len(found) > _MOST_NAMES else []
    return " or ".join([*shown, *more])


def _common_prefix(shapes: Shapes) -> str:
    """What every name begins with, such as ``model.``; training frameworks wrap networks so."""
    first = next(iter(shapes), "").partition(".")[0] + "."
    return first if all(key.startswith(first) for key in shapes) else ""


@cache
def known() -> tuple[Family, ...]:
    """The networks of the table; torchvision's come first, then shorter names."""
    text = (resources.files("adascale") / "network" / "data" / "families.csv").read_text("utf8")
    rows = [
        Family(row["source"], row["name"], Signature(row["names"], row["shapes"]))
        for row in csv.DictReader(text.splitlines())
    ]
    return tuple(sorted(rows, key=lambda row: (("torchvision", "adascale", "timm").index(row.source), len(row.name))))
