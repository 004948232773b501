"""Two benchmarks side by side: which figures moved, whether by more than chance, and which settings differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adascale.bench.columns import MEANS
from adascale.bench.same_sets import fitted_on_others, other_images, tested_sets
from adascale.bench.scores import NAME, read_scores, score_key
from adascale.bench.tables import read_results
from adascale.core.errors import InputError
from adascale.maths.metrics import Difference, paired_bootstrap
from adascale.storage.tensors import TensorFileError

Key = tuple[str, str, str, str]  # model, method, dataset, spectrum
Stored = Mapping[str, Any]  # a row of results.json


class Moved(NamedTuple):
    """One row of both runs, in percent.

    paired: the change of the AUROC with its 95 % interval by `paired_bootstrap`, the same images in both runs, as
    shares; None where the scores are not stored, or belong to different images.
    """

    model: str
    method: str
    dataset: str
    spectrum: str
    auroc: tuple[float, float]
    fpr95: tuple[float, float]
    paired: Difference | None = None

    @property
    def change(self) -> float:
        return self.auroc[1] - self.auroc[0]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the change, in percent."""
        return None if self.paired is None else (100 * self.paired.low, 100 * self.paired.high)

    @property
    def beyond_chance(self) -> bool | None:
        """Whether the interval leaves out 0; None if there is none."""
        return None if self.paired is None else self.paired.beyond_chance


class Differences(NamedTuple):
    """moved: the rows of both runs, the largest change first. only: methods of one run alone.

    settings: what differs of what both runs have. only_settings: settings of one run alone, other than those of its
    methods. other_sets: tested sets that only one of them has, or whose images differ. notes: which rows have no
    interval and why, and whether the methods learned from other images.
    """

    moved: list[Moved]
    only: tuple[list[str], list[str]]
    settings: dict[str, tuple[Any, Any]]
    other_sets: list[str]
    only_settings: tuple[list[str], list[str]] = ([], [])
    notes: tuple[str, ...] = ()


def compare(first: Path, second: Path, every_set: bool = False) -> Differences:
    """Join the rows by network, method and set; if each run has one network, its name does not matter."""
    documents = read_results(first), read_results(second)
    single = all(len({row["model"] for row in document["rows"]}) == 1 for document in documents)
    a, b = (_Side(path, document, single) for path, document in zip((first, second), documents, strict=True))
    reasons = other_images(*documents)
    before, after = a.joined(b), b.joined(a)
    moved = []
    behind: dict[tuple[str, str], set[str]] = {}  # data set and spectrum -> the sets behind its figures
    for key in (key for key in before if key in after and (every_set or key[2] in MEANS.values())):
        rows = before[key], after[key]
        auroc, fpr95 = ((100 * rows[0][name], 100 * rows[1][name]) for name in ("auroc", "fpr95"))
        moved.append(Moved(*key, auroc, fpr95, _paired(a.parts(rows[0]), b.parts(rows[1]), set(reasons))))
        behind.setdefault((key[2], key[3]), set()).update(a.sets(rows[0]), b.sets(rows[1]))
    if not moved:
        raise InputError(f"{first} and {second} have no method and set in common; there is nothing to compare.")
    moved.sort(key=lambda row: -abs(row.change))
    settings, only_settings = _settings(_about(documents[0], single), _about(documents[1], single))
    only = sorted(_methods(before) - _methods(after)), sorted(_methods(after) - _methods(before))
    notes = [a.problem, b.problem, _incomparable(behind, reasons), fitted_on_others(*documents)]
    return Differences(moved, only, settings, sorted(reasons), only_settings, tuple(filter(None, notes)))


def _incomparable(behind: Mapping[tuple[str, str], set[str]], reasons: Mapping[str, str]) -> str:
    """Which figures of the two runs are over other images, and why; "" if none is."""
    rows = [(name, spectrum) for (name, spectrum), sets in behind.items() if sets & set(reasons)]
    if not rows:
        return ""
    labels = ", ".join(name + (" (full spectrum)" if spectrum == "full" else "") for name, spectrum in rows)
    why = "; ".join(reason for name, reason in reasons.items() if any(name in behind[row] for row in rows))
    return f"{labels}: no interval, and a change is not that of the methods alone, for the images differ ({why})"


class _Parts(NamedTuple):
    """The scores that a row was computed from: the ID side, and the OOD sets; names: all of its sets."""

    names: list[str]
    known: Tensor
    unknown: list[Tensor]


@dataclass(eq=False)
class _Side:
    """One of the runs. problem: why its scores cannot be used."""

    path: Path
    document: Mapping[str, Any]
    single: bool
    problem: str = field(default="", init=False)

    @cached_property
    def rows(self) -> dict[Key, Stored]:
        return {self._key(row, row["method"]): row for row in self.document["rows"]}

    def joined(self, other: _Side) -> dict[Key, Stored]:
        """The rows. A line that stands for two with the same parameters has both labels, if the other run does."""
        found = dict(self.rows)
        for model, network in self.document["reproduce"]["networks"].items():
            for label, kept in network.get("twins", {}).items():
                for row in (row for row in self.document["rows"] if (row["model"], row["method"]) == (model, kept)):
                    if (key := self._key(row, label)) in other.rows:
                        found[key] = row
        return found

    @cached_property
    def scores(self) -> Mapping[str, Tensor]:
        folder = self.path if self.path.is_dir() else self.path.parent
        try:
            found = read_scores(folder)
            self.problem = "" if found else f"{folder} has no {NAME}, so there are no intervals"
        except TensorFileError as error:
            found, self.problem = {}, f"there are no intervals: {str(error).rstrip('.')}"
        return found

    def parts(self, row: Stored) -> _Parts | None:
        """The scores of a row of this run. In the full spectrum the shifted sets are on the ID side."""
        prefix = score_key(row["model"], row["method"], "")
        own = {name.removeprefix(prefix): part for name, part in self.scores.items() if name.startswith(prefix)}
        kinds = {each["dataset"]: each["kind"] for each in self.document["rows"] if each["model"] == row["model"]}
        tested = [name for name, kind in kinds.items() if name in own and kind == row["kind"]]
        if row["dataset"] not in MEANS.values():
            tested = [name for name in tested if name == row["dataset"]]
        shifted = sorted(name for name in own if name not in (*kinds, "id")) if row["spectrum"] == "full" else []
        if "id" not in own or not tested:
            return None
        names = ["id", *shifted]
        return _Parts([*names, *tested], torch.cat([own[name] for name in names]), [own[name] for name in tested])

    def sets(self, row: Stored) -> set[str]:
        """The sets behind a row. In the full spectrum the shifted sets, which have no row, are among them."""
        own = [each for each in self.document["rows"] if each["model"] == row["model"]]
        kinds = {each["dataset"]: each["kind"] for each in own if each["dataset"] not in MEANS.values()}
        is_mean = row["dataset"] in MEANS.values()
        tested = {name for name, kind in kinds.items() if (kind == row["kind"] if is_mean else name == row["dataset"])}
        shifted = set(tested_sets(self.document)) - set(kinds) if row["spectrum"] == "full" else set()
        return {"id", *tested, *shifted}

    def _key(self, row: Stored, method: str) -> Key:
        return "" if self.single else row["model"], method, row["dataset"], row["spectrum"]


def _paired(before: _Parts | None, after: _Parts | None, others: set[str]) -> Difference | None:
    """None unless both have the scores of the same images. others: sets whose images differ."""
    if before is None or after is None or before.names != after.names or others & set(before.names):
        return None
    first, second = [before.known, *before.unknown], [after.known, *after.unknown]
    if any(len(one) != len(two) for one, two in zip(first, second, strict=True)):
        return None  # an image could be read in one run only
    if all(torch.equal(one, two) for one, two in zip(first, second, strict=True)):
        return Difference(0.0, 0.0, 0.0)
    return paired_bootstrap(second, first)


def _methods(rows: Mapping[Key, Any]) -> set[str]:
    return {" ".join(filter(None, key[:2])) for key in rows}


def _about(document: Mapping[str, Any], single: bool) -> dict[str, Any]:
    """The settings, without the images, which are compared by themselves."""
    about = {name: value for name, value in document["reproduce"].items() if name != "sets"}
    if single:
        (network,) = about["networks"].values()
        about["networks"] = {"network": network}
    return about


def _settings(
    first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = ""
) -> tuple[dict[str, tuple[Any, Any]], tuple[list[str], list[str]]]:
    """What differs of nested settings, as ``a.b.c``, and the names that only one has.

    Methods of one run alone are not listed again.
    """
    differing: dict[str, tuple[Any, Any]] = {}
    only: tuple[list[str], list[str]] = [], []
    for name in sorted({*first, *second}):
        path = f"{prefix}{name}"
        if name not in first or name not in second:
            if not prefix.endswith((".methods.", ".left_out.", ".twins.")):
                only[name in second].append(path)
        elif isinstance(first[name], Mapping) and isinstance(second[name], Mapping):
            inner, inner_only = _settings(first[name], second[name], f"{path}.")
            differing |= inner
            for side, names in zip(only, inner_only, strict=True):
                if prefix.endswith(".methods."):  # a setting that only one run stores is named once for all methods
                    names = [one.replace(f"{path}.", f"{prefix}*.", 1) for one in names]
                side += [one for one in names if one not in side]
        elif first[name] != second[name]:
            differing[path] = first[name], second[name]
    return differing, only
