"""What methods that look at inner layers have in common."""

from __future__ import annotations

from collections.abc import Iterator

from adascale.core.taps import Found
from adascale.core.types import Outputs, Tap
from adascale.detectors.rows import in_chunks

LayersOf = tuple[str, ...]  # names of modules; empty: found by behaviour


def names_or(names: LayersOf, found: Found) -> Found | LayersOf:
    """The layers of a tap: those that are named, else those that are found in this way."""
    return names or found


def tapped_chunks(outputs: Outputs, tap: Tap) -> Iterator[Outputs]:
    """The samples in chunks, with no other tap."""
    rest = Outputs(outputs.logits, outputs.features, labels=outputs.labels, taps={tap: outputs.taps[tap]})
    return in_chunks(rest)
