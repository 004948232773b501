"""Two benchmarks side by side: which figures moved, and which settings differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adascale.bench.columns import MEANS
from adascale.bench.tables import read_results
from adascale.core.errors import InputError

Key = tuple[str, str, str, str]  # model, method, dataset, spectrum


class Moved(NamedTuple):
    """One row of both runs, in percent."""

    model: str
    method: str
    dataset: str
    spectrum: str
    auroc: tuple[float, float]
    fpr95: tuple[float, float]

    @property
    def change(self) -> float:
        return self.auroc[1] - self.auroc[0]


class Differences(NamedTuple):
    """moved: the rows of both runs, the largest change first. only: methods of one run alone. settings: what differs.

    other_sets: sets that only one of them has, or whose images differ; means over them cannot be compared.
    """

    moved: list[Moved]
    only: tuple[list[str], list[str]]
    settings: dict[str, tuple[Any, Any]]
    other_sets: list[str]


def compare(first: Path, second: Path, every_set: bool = False) -> Differences:
    """Join the rows by network, method and set; if each run has one network, its name does not matter."""
    documents = read_results(first), read_results(second)
    single = all(len({row["model"] for row in document["rows"]}) == 1 for document in documents)
    a, b = ({_key(row, single): row for row in document["rows"]} for document in documents)
    wanted = [key for key in a if key in b and (every_set or key[2] in MEANS.values())]
    if not wanted:
        raise InputError(f"{first} and {second} have no method and set in common; there is nothing to compare.")
    moved = [Moved(*key, *((100 * a[key][name], 100 * b[key][name]) for name in ("auroc", "fpr95"))) for key in wanted]
    moved.sort(key=lambda row: -abs(row.change))
    before, after = (_flat(_about(document, single)) for document in documents)
    settings = {name: (before.get(name), after.get(name)) for name in sorted({*before, *after})}
    differing = {name: pair for name, pair in settings.items() if pair[0] != pair[1]}
    own, theirs = (document["reproduce"]["sets"] for document in documents)
    other_sets = sorted(name for name in {*own, *theirs} if own.get(name) != theirs.get(name))
    return Differences(moved, (_only(a, b), _only(b, a)), differing, other_sets)


def _about(document: Mapping[str, Any], single: bool) -> dict[str, Any]:
    about = dict(document["reproduce"])
    if single:
        (network,) = about["networks"].values()
        about["networks"] = {"network": network}
    return about


def _only(mine: Mapping[Key, Any], other: Mapping[Key, Any]) -> list[str]:
    """Methods that the other run does not have at all."""
    theirs = {key[:2] for key in other}
    return sorted({" ".join(filter(None, key[:2])) for key in mine if key[:2] not in theirs})


def _key(row: Mapping[str, Any], single: bool) -> Key:
    return "" if single else row["model"], row["method"], row["dataset"], row["spectrum"]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as ``a.b.c``."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {k: v for name, part in value.items() for k, v in _flat(part, f"{prefix}.{name}".lstrip(".")).items()}
