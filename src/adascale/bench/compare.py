"""Two benchmarks side by side: what moved, and what was set differently."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adascale.bench.results import MEANS
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


class Comparison(NamedTuple):
    """moved: the rows of both, those that moved most first. only: rows of one run alone. settings: what differs.

    other_sets: sets that only one of them has, or whose images differ; means over them cannot be compared.
    """

    moved: list[Moved]
    only: tuple[list[str], list[str]]
    settings: dict[str, tuple[Any, Any]]
    other_sets: list[str]


def compare(first: Path, second: Path, every_set: bool = False) -> Comparison:
    """Join by network, method and set; a single network in each is matched whatever its name."""
    documents = read_results(first), read_results(second)
    single = all(len({row["model"] for row in document["rows"]}) == 1 for document in documents)
    a, b = ({_key(row, single): row for row in document["rows"]} for document in documents)
    wanted = [key for key in a if key in b and (every_set or key[2] in MEANS.values())]
    if not wanted:
        raise InputError(f"{first} and {second} have no method and set in common; there is nothing to compare.")
    moved = [Moved(*key, *((100 * a[key][name], 100 * b[key][name]) for name in ("auroc", "fpr95"))) for key in wanted]
    moved.sort(key=lambda row: -abs(row.change))
    before, after = (_flat(_about(document, single)) for document in documents)
    names = sorted(set(before) | set(after))
    settings = {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}
    return Comparison(moved, (_only(a, b), _only(b, a)), settings, _other_sets(*documents))


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


def _other_sets(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    a, b = (document["reproduce"]["sets"] for document in (first, second))
    return sorted(name for name in {*a, *b} if a.get(name) != b.get(name))


def _key(row: Mapping[str, Any], single: bool) -> Key:
    return "" if single else row["model"], row["method"], row["dataset"], row["spectrum"]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as ``a.b.c``."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {k: v for name, part in value.items() for k, v in _flat(part, f"{prefix}.{name}".lstrip(".")).items()}
