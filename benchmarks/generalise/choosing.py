"""Leave one network out: the best on the others is measured on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.generalise.measuring import Array, Figures, interval

Table = Mapping[str, Mapping[str, Figures]]  # candidate -> network -> figures


def best_on(table: Table, networks: Sequence[str], needed: Sequence[str]) -> str:
    """The candidate with the highest mean AUROC on ``networks``, among those that have figures for all ``needed``."""
    complete = [name for name, row in table.items() if all(network in row for network in needed)]
    return max(complete, key=lambda name: mean_auroc(table[name], networks))


def left_out_choices(table: Table, networks: Sequence[str]) -> dict[str, str]:
    """Network -> the candidate that is best on all other networks."""
    return {left: best_on(table, [name for name in networks if name != left], networks) for left in networks}


def mean_auroc(row: Mapping[str, Figures], networks: Sequence[str]) -> float:
    return sum(row[name].auroc for name in networks) / len(networks)


def mean_fpr95(row: Mapping[str, Figures], networks: Sequence[str]) -> float:
    return sum(row[name].fpr95 for name in networks) / len(networks)


class Gap(NamedTuple):
    """A difference of means over networks, in percentage points, with 95 % intervals.

    images: the test images of each network are drawn again, the networks are the same. networks: they are drawn again
    too, as if they were a sample of the networks that users bring.
    """

    value: float
    images: tuple[float, float]
    networks: tuple[float, float]

    def __str__(self) -> str:
        texts = [f"{low:+.2f} to {high:+.2f}" for low, high in (self.images, self.networks)]
        return f"{self.value:+.2f} (images {texts[0]}; networks {texts[1]})"


def gap(value: float, draws: Sequence[Array], seed: int = 0) -> Gap:
    """draws: for each network the difference in each resample of its images."""
    table = np.stack(draws)
    generator = np.random.default_rng(seed)
    rows = generator.integers(0, len(table), (table.shape[1], len(table)))
    again = table[rows, np.arange(table.shape[1])[:, None]].mean(1)
    return Gap(value, interval(table.mean(0)), interval(again))
