"""Rows of scored images with a further column: which of them are discoveries at a false discovery rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from adascale.maths.discoveries import largest_discovery
from adascale.storage.rows import Row

COLUMN = "discovery"


class Discoveries(NamedTuple):
    """Those of one detector: their number, that of all images, and their largest p-value (0 if there are none)."""

    number: int
    images: int
    largest: float


def find_discoveries(rows: Iterable[Row], columns: Sequence[str], fdr: float) -> dict[str, Discoveries]:
    """The discoveries of each detector, by the prefix of its columns: ``""``, or ``NAME.`` where there are several.

    Images that could not be read have no p-value and do not count.
    """
    names = [column.removesuffix("p_value") for column in columns if column.rpartition(".")[2] == "p_value"]
    p_values: dict[str, list[float]] = {prefix: [] for prefix in names}
    for row in rows:
        for prefix, values in p_values.items():
            if (p := row[f"{prefix}p_value"]) is not None:
                values.append(p)
    found = {}
    for prefix, values in p_values.items():
        largest = largest_discovery(torch.tensor(values, dtype=torch.float64), fdr)
        found[prefix] = Discoveries(sum(p <= largest for p in values), len(values), largest)
    return found


def discovered(rows: Iterable[Row], found: Mapping[str, Discoveries]) -> Iterator[Row]:
    """The rows with their discoveries; None where an image could not be read."""
    for row in rows:
        p_values = {prefix: row[f"{prefix}p_value"] for prefix in found}
        added = {f"{k}{COLUMN}": None if p is None else p <= found[k].largest for k, p in p_values.items()}
        yield {**row, **added}


def with_discovery(columns: Sequence[str], found: Mapping[str, Discoveries]) -> list[str]:
    """The columns with ``discovery`` after each ``is_ood``; as they are if discoveries were not asked for."""
    added = {f"{prefix}is_ood": f"{prefix}{COLUMN}" for prefix in found}
    return [name for column in columns for name in (column, added.get(column)) if name is not None]
