"""Benchmark suites as data: which images are ID, near-OOD, far-OOD or shifted ID, and where they lie."""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from adascale.bench import SUITES as SUITES
from adascale.core.errors import InputError
from adascale.images.corruptions import KINDS, Corruption, all_corruptions
from adascale.images.sources import LIST_SUFFIXES, ImageSet, find_images

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PARTS, _GROUPS = ("id", "val", "train"), ("near", "far", "shifted", "ood_val")
_RESERVED = (*_PARTS, "nearood", "farood")
_MOST_VAL, _LEAST_VAL = 1000, 10


@dataclass(frozen=True)
class Source:
    """Where the images of one set come from.

    images: a folder, an image list, an .npz or a file; ``digits:PART``; None for the suite's own ID images, corrupted.
    root: where a list's relative paths start. rows: first and one past the last image. labels: a table of
    ``filename,class_index``. corrupt: what is done to every image.
    """

    images: str | None
    root: str | None = None
    rows: tuple[int, int] | None = None
    labels: str | None = None
    corrupt: Corruption | None = None

    def __post_init__(self) -> None:
        if self.images is None and self.corrupt is None:
            raise InputError("A set without images; give images = PATH, or corrupt = KIND:SEVERITY for the ID images.")
        if self.rows is not None and not 0 <= self.rows[0] < self.rows[1]:
            raise InputError(f"rows = {list(self.rows)} of {self.images}; give [first, one past the last].")

    def overlaps(self, other: Source | None) -> bool:
        """Whether both name the same file or folder, and not disjoint rows of it."""
        if other is None or self.images != other.images:
            return False
        (first, stop), (start, end) = (source.rows or (0, sys.maxsize) for source in (self, other))
        return max(first, start) < min(stop, end)


@dataclass(frozen=True)
class Suite:
    """ID test images, ID for fitting (``val``) and training, and named sets to tell from them.

    shifted: ID under covariate shift, for the full spectrum. ood_val: OOD to tune on. note: what a reader of the
    figures must know. shipped: one of the package's own, whatever others are called.
    """

    name: str
    id: Source
    val: Source | None = None
    train: Source | None = None
    near: Mapping[str, Source] = field(default_factory=dict)
    far: Mapping[str, Source] = field(default_factory=dict)
    shifted: Mapping[str, Source] = field(default_factory=dict)
    ood_val: Mapping[str, Source] = field(default_factory=dict)
    note: str = ""
    shipped: bool = False

    def __post_init__(self) -> None:
        if not self.near and not self.far:
            raise InputError(f"The suite {self.name} has no OOD set; it needs at least one near or far set.")
        names = [*self.near, *self.far, *self.shifted]
        if reserved := sorted(set(map(str.strip, names)) & set(_RESERVED)):
            raise InputError(
                f"The suite {self.name} has a set named {reserved[0]}, which means something else; rename it."
            )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(
                f"The suite {self.name} has two sets named {', '.join(twice)}; every name must be its own."
            )
        named = [("val", self.val), ("train", self.train)]
        others = [*named, *self.near.items(), *self.far.items(), *self.ood_val.items()]
        for name, source in others:
            if self.id.overlaps(source):
                raise InputError(f"{name} has the images {self.id.images} of the ID test set; it must have others.")
        if None in (self.id.images, *(source.images for _, source in others if source is not None)):
            raise InputError(f"The suite {self.name} corrupts its ID images outside of the shifted sets; give images.")


@dataclass(frozen=True, eq=False)
class SuiteImages:
    """A suite's images. missing: the sets that were dropped, and where they were expected."""

    id: ImageSet
    val: ImageSet
    train: ImageSet | None
    near: Mapping[str, ImageSet]
    far: Mapping[str, ImageSet]
    shifted: Mapping[str, ImageSet]
    ood_val: Mapping[str, ImageSet]
    missing: Mapping[str, str] = field(default_factory=dict)


def load_suite(name_or_path: str, data: Path | None = None) -> Suite:
    """A shipped suite by name, or a TOML file.

    ``data``: where relative paths start. Without it the file's ``root``, else its folder; for shipped suites the
    environment variable OPENOOD_DATA, else ``./data``.
    """
    path = Path(name_or_path)
    if name_or_path in SUITES:
        text = (resources.files("adascale") / "bench" / "data" / f"{name_or_path}.toml").read_text("utf8")
        base = Path(os.environ.get("OPENOOD_DATA") or "data")
    elif path.is_file():
        text, base = path.read_text("utf8", "replace"), path.parent
    else:
        raise InputError(f"There is no suite {name_or_path}; give one of {', '.join(SUITES)}, or a TOML file.")
    try:
        record = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} cannot be read as TOML: {error}.") from error
    try:
        return replace(_suite(record, path.stem, base, data), shipped=name_or_path in SUITES)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def own_suite(
    id: str, val: str | None, train: str | None, near: Sequence[str], far: Sequence[str], shifted: Sequence[str]
) -> Suite:
    """From ``PATH`` or ``NAME=PATH`` texts; shifted sets may also be corruptions of the ID images: noise:3, or all."""
    name, place = name_and_path(id)
    groups: dict[str, Any] = {}
    for group, texts in (("near", near), ("far", far), ("shifted", shifted)):
        sets = groups.setdefault(group, {})
        for label, source in (entry for text in texts for entry in _entries(text, group)):
            if label in sets:
                raise InputError(f"Two {group} sets are named {label}; give one of them a name: NAME=PATH.")
            sets[label] = source
    fitted, trained = (None if text is None else Source(name_and_path(text)[1]) for text in (val, train))
    return Suite(name, Source(place), fitted, trained, **groups)


def open_suite(suite: Suite, available: bool = False, seed: int = 0, limit: int | None = None) -> SuiteImages:
    """Find every image. What is missing is one error, or with ``available`` left out.

    Without ``val`` a fifth of the ID images is set aside for it. ``limit``: at most so many images of each set.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit={limit}; give at least 1 image for each set.")
    missing: dict[str, str] = {}

    def opened(label: str, source: Source | None, own: ImageSet | None = None) -> ImageSet | None:
        try:
            return None if source is None else _open(_seeded(source, seed), own)
        except _AbsentError as error:
            missing[label] = str(error)
            return None

    known, val, train = (opened(part, getattr(suite, part)) for part in _PARTS)
    if known is not None and suite.val is None:
        known, val = _set_aside(known, suite, seed)
    known, val, train = (found and at_most(found, limit, seed) for found in (known, val, train))
    groups: dict[str, dict[str, ImageSet]] = {group: {} for group in _GROUPS}
    for group, name, source in ((g, n, s) for g in _GROUPS for n, s in getattr(suite, g).items()):
        if source.images is not None or known is not None:
            found = opened(f"{group} {name}", source, known)
            groups[group] |= {} if found is None else {name: at_most(found, limit, seed)}
    if known is None or val is None or (missing and not (available and (groups["near"] or groups["far"]))):
        raise InputError(_lacking(suite, missing, known is not None and val is not None, groups))
    tested = {**groups["near"], **groups["far"]}
    _refuse_shared("id", known, {"val": val, **tested})
    _refuse_shared("val", val, tested)
    for name, found in groups["ood_val"].items():
        _refuse_shared(f"ood_val {name}", found, tested)
    return SuiteImages(known, val, train, **groups, missing=missing)


def _refuse_shared(name: str, images: ImageSet, others: Mapping[str, ImageSet]) -> None:
    """Whatever the folders and lists are called: the same file must not be on both sides."""
    mine = set(map(os.path.abspath, images.paths))
    for label, other in others.items():
        if shared := mine & set(map(os.path.abspath, other.paths)):
            raise InputError(f"{name} and {label} share {len(shared)} images ({min(shared)} ...); they must not.")


def _seeded(source: Source, seed: int) -> Source:
    return source if source.corrupt is None else replace(source, corrupt=replace(source.corrupt, seed=seed))


class _AbsentError(Exception):
    """Something is not where it should be; the text says where."""


def _lacking(suite: Suite, missing: Mapping[str, str], known: bool, groups: Mapping[str, Any]) -> str:
    sets = "; ".join(f"{label} (expected: {place})" for label, place in missing.items())
    rest = "or run the rest with --available"
    if not known:
        rest = "the ID images are always needed"
    elif not groups["near"] and not groups["far"]:
        rest = "at least one OOD set is needed"
    where = "Put them there, or name a suite's folder with --data"
    return f"The suite {suite.name} lacks {len(missing)} of its sets: {sets}. {where}; {rest}."


def _suite(record: dict[str, Any], stem: str, base: Path, data: Path | None) -> Suite:
    unknown = sorted(set(record) - {"name", "note", "root", *_PARTS, *_GROUPS})
    if unknown:
        raise InputError(
            f"{', '.join(unknown)} means nothing here; use name, note, root, {', '.join(_PARTS + _GROUPS)}."
        )
    if "id" not in record:
        raise InputError("the ID test images are missing; give id = PATH.")
    if data is not None:
        base = data
    elif "root" in record:
        base = base / _expanded(str(record["root"]))
    parts: dict[str, Any] = {part: _source(record[part], base) for part in _PARTS if part in record}
    groups: dict[str, Any] = {group: _sets(record.get(group, {}), group, base) for group in _GROUPS}
    return Suite(str(record.get("name", stem)), **parts, **groups, note=str(record.get("note", "")))


def _sets(entries: Any, group: str, base: Path) -> dict[str, Source]:
    if not isinstance(entries, Mapping):
        raise InputError(f"{group} = {entries!r}; give a table of named sets: [{group}], then NAME = PATH.")
    return {name: _source(entry, base) for name, entry in entries.items()}


def _source(entry: Any, base: Path) -> Source:
    """A path, or a table with the fields of ``Source``."""
    table = {"images": entry} if isinstance(entry, str) else entry
    texts = ("images", "root", "labels", "corrupt")
    if not isinstance(table, Mapping) or set(table) - {*texts, "rows"}:
        raise InputError(f"the set {entry!r} is none; give a path, or a table of images, root, rows, labels, corrupt.")
    if not all(isinstance(table.get(key, ""), str) for key in texts):
        raise InputError(f"the set {dict(table)}: {', '.join(texts)} must be texts.")
    rows = table.get("rows")
    if rows is not None and not (isinstance(rows, list) and len(rows) == 2 and all(type(row) is int for row in rows)):
        raise InputError(f"rows = {rows!r}; give [first, one past the last].")
    images, root, labels = (_placed(table.get(key), base) for key in ("images", "root", "labels"))
    corrupt = Corruption.parse(table["corrupt"]) if "corrupt" in table else None
    return Source(images, root, None if rows is None else (rows[0], rows[1]), labels, corrupt)


def _placed(text: str | None, base: Path) -> str | None:
    return text if text is None or text.startswith("digits:") else str(base / _expanded(text))


def _expanded(text: str) -> str:
    for match in re.finditer(r"\$(?:(\w+)|\{(\w+)\})", text):
        name = match[1] or match[2]
        if name not in os.environ:
            raise InputError(f"the path {text} needs the environment variable {name}, which is not set; set it.")
    return os.path.expanduser(os.path.expandvars(text))


def _entries(text: str, group: str) -> list[tuple[str, Source]]:
    """The set, or sets, that one text of the command line stands for."""
    if group == "shifted" and text == "all":
        return [(str(change), Source(None, corrupt=change)) for change in all_corruptions()]
    name, place = name_and_path(text)
    if group == "shifted" and place.partition(":")[0] in KINDS and not Path(place).exists():
        return [(name, Source(None, corrupt=Corruption.parse(place)))]
    return [(name, Source(place))]


def name_and_path(text: str) -> tuple[str, str]:
    """``NAME=PATH``; where the part before ``=`` holds a slash it is a path too."""
    name, equals, place = text.partition("=")
    if not equals or "/" in name or os.sep in name:
        path = Path(text)
        name, place = (path.resolve().name if path.is_dir() else path.stem), text
    if not name or not place:
        raise InputError(f"The set {text!r} lacks a name or a path; give PATH or NAME=PATH.")
    return name, place


def _open(source: Source, own: ImageSet | None) -> ImageSet:
    if source.images is None:
        assert own is not None
        found = own
    elif source.images.startswith("digits:"):
        from adascale.network.digits import digit_images  # imports torch

        found = digit_images(source.images.removeprefix("digits:"))
    else:
        found = _found(Path(source.images), source.root)
    if source.labels is not None:
        found = replace(found, labels=_labels(found, Path(source.labels)))
    if source.rows is not None:
        if source.rows[1] > len(found):
            raise InputError(f"rows = {list(source.rows)}, but {source.images} has {len(found)} images.")
        found = found.subset(range(*source.rows))
    return found if source.corrupt is None else replace(found, change=source.corrupt)


def _found(path: Path, root: str | None) -> ImageSet:
    if not path.exists():
        raise _AbsentError(str(path))
    try:
        images = find_images(path, root)
    except InputError:
        if path.is_dir():
            raise _AbsentError(f"{path}, which holds no image") from None
        raise
    if path.suffix.lower() in LIST_SUFFIXES and path.is_file() and not images.paths[0].exists():
        raise _AbsentError(f"{images.paths[0]}, the first image of {path}")
    return images


def _labels(images: ImageSet, table: Path) -> list[int]:
    """By the image's name or its file's; a first line with titles is skipped."""
    if not table.is_file():
        raise _AbsentError(str(table))
    with open(table, newline="", encoding="utf8", errors="replace") as lines:
        rows = [row for row in csv.reader(lines) if len(row) >= 2]
    known = {row[0]: int(row[1]) for row in rows if re.fullmatch(r"-?\d+", row[1].strip())}
    keys = [name if name in known else name.rpartition("/")[2] for name in images.names]
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise InputError(f"{table} has no class for {unknown[0]} ({len(unknown)} such); give filename,class_index.")
    return [known[key] for key in keys]


def _set_aside(images: ImageSet, suite: Suite, seed: int) -> tuple[ImageSet, ImageSet]:
    count = min(_MOST_VAL, max(_LEAST_VAL, len(images) // 5), len(images) // 2)
    if not count:
        raise InputError(
            f"The ID set {suite.id.images} has 1 image; give val, or at least 2, of which one is set aside."
        )
    order = np.random.default_rng(seed).permutation(len(images))
    return images.subset(sorted(order[count:].tolist())), images.subset(sorted(order[:count].tolist()))


def at_most(images: ImageSet, limit: int | None, seed: int) -> ImageSet:
    """At most so many images, a seeded draw; the order stays."""
    if limit is None or len(images) <= limit:
        return images
    return images.subset(sorted(np.random.default_rng(seed).permutation(len(images))[:limit].tolist()))
