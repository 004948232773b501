"""Benchmark suites as data: which images are ID, near-OOD, far-OOD or shifted ID, and where they are."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from adascale.bench import SUITES, check_suite
from adascale.bench.opening import AbsentError, at_most, open_source, refuse_shared, set_aside
from adascale.core.errors import InputError
from adascale.images.corruptions import KINDS, Corruption, all_corruptions
from adascale.images.limits import MAX_PIXELS
from adascale.images.places import DATASET
from adascale.images.sources import ImageSet
from adascale.storage.remote import is_url

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PARTS, _GROUPS = ("id", "val", "train"), ("near", "far", "shifted", "ood_val")
_RESERVED = (*_PARTS, "nearood", "farood")


@dataclass(frozen=True)
class Source:
    """Where the images of one set come from.

    images: a folder, an image list, an .npz, a file or a glob; ``digits:PART``; None for the suite's own ID images,
    corrupted. root: the folder that relative paths of a list start from. rows: the first and one past the last image.
    labels: a table of ``filename,class_index``. corrupt: the corruption of every image.
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
    """ID images for testing, fitting (``val``) and training, and named sets to tell from them.

    shifted: ID images under covariate shift, for the full spectrum. ood_val: OOD images to tune on. note: what readers
    of the figures must know. shipped: whether the suite comes with this package.
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
        names = Counter([*self.near, *self.far, *self.shifted])
        if reserved := sorted(set(map(str.strip, names)) & set(_RESERVED)):
            raise InputError(f"The suite {self.name} has a set named {reserved[0]}, which is reserved; rename it.")
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise InputError(f"The suite {self.name} has two sets named {', '.join(twice)}; rename one of them.")
        others = [("val", self.val), ("train", self.train)]
        others += [entry for group in (self.near, self.far, self.ood_val) for entry in group.items()]
        for name, source in others:
            if self.id.overlaps(source):
                raise InputError(f"{name} has the images {self.id.images} of the ID test set; it must have others.")
        if None in (self.id.images, *(source.images for _, source in others if source is not None)):
            raise InputError(f"The suite {self.name} corrupts ID images outside of the shifted sets; give images.")


@dataclass(frozen=True, eq=False)
class SuiteImages:
    """The images of a suite. missing: the sets that were left out, and where they were expected. name: the suite's.

    found: how many validation and training images there are, before a limit.
    """

    id: ImageSet
    val: ImageSet
    train: ImageSet | None
    near: Mapping[str, ImageSet]
    far: Mapping[str, ImageSet]
    shifted: Mapping[str, ImageSet]
    ood_val: Mapping[str, ImageSet]
    missing: Mapping[str, str] = field(default_factory=dict)
    found: Mapping[str, int] = field(default_factory=dict)
    name: str = "images"


def load_suite(name_or_path: str, data: Path | None = None) -> Suite:
    """A shipped suite by name, or a TOML file.

    ``data``: the folder that relative paths start from. The default is the file's ``root``, or its own folder; for
    shipped suites it is the environment variable OPENOOD_DATA, or ``./data``.

    For example:

        >>> suite = load_suite("digits")
        >>> list(suite.near), list(suite.far)
        (['digits 8 and 9'], ['photographs'])
    """
    path = Path(name_or_path)
    if name_or_path in SUITES:
        text = (resources.files("adascale") / "bench" / "data" / f"{name_or_path}.toml").read_text("utf8")
        base = Path(os.environ.get("OPENOOD_DATA") or "data")
    else:
        text, base = Path(check_suite(name_or_path)).read_text("utf8", "replace"), path.parent
    try:
        return replace(_suite(tomllib.loads(text), path.stem, base, data), shipped=name_or_path in SUITES)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} cannot be read as TOML: {error}.") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def own_suite(
    id: str, val: str | None, train: str | None, near: Sequence[str], far: Sequence[str], shifted: Sequence[str]
) -> Suite:
    """From ``PATH`` or ``NAME=PATH`` texts; shifted sets may also be corruptions of the ID images: noise:3, or all.

    For example:

        >>> suite = own_suite("my/test", "my/val", None, ["letters=my/near"], ["my/far"], ["noise:3"])
        >>> list(suite.near), list(suite.far), list(suite.shifted)
        (['letters'], ['far'], ['noise:3'])
    """
    groups: dict[str, Any] = {"near": {}, "far": {}, "shifted": {}}
    for group, texts in zip(groups, (near, far, shifted), strict=True):
        for label, source in (entry for text in texts for entry in _entries(text, group)):
            if label in groups[group]:
                raise InputError(f"Two {group} sets are named {label}; give one of them a name: NAME=PATH.")
            groups[group][label] = source
    fitted, trained = (None if text is None else Source(name_and_path(text)[1]) for text in (val, train))
    name, place = name_and_path(id)
    return Suite(name, Source(place), fitted, trained, **groups)


def open_suite(
    suite: Suite,
    available: bool = False,
    seed: int = 0,
    limit: int | None = None,
    limit_fit: int | None = None,
    max_pixels: int = MAX_PIXELS,
) -> SuiteImages:
    """Find every image. Missing sets raise one error, or are left out with ``available``.

    Without ``val`` a fifth of the ID images is set aside for it. ``limit``: the largest number of images of each tested
    set and OOD validation set. ``limit_fit``: that of the validation and the training images, which methods learn from
    and are tuned on; fewer of them make other detectors, so ``limit`` leaves them alone. ``max_pixels``: as for
    `find_images`.
    """
    for name, most in (("limit", limit), ("limit_fit", limit_fit)):
        if most is not None and most < 1:
            raise InputError(f"{name}={most}; give at least 1 image for each set.")
    missing: dict[str, str] = {}

    def opened(label: str, source: Source | None, own: ImageSet | None = None) -> ImageSet | None:
        try:
            return None if source is None else open_source(source, own, seed, max_pixels)
        except AbsentError as error:
            missing[label] = str(error)
            return None

    known, val, train = (opened(part, getattr(suite, part)) for part in _PARTS)
    if known is not None and suite.val is None:
        known, val = set_aside(known, seed)
    known = known and at_most(known, limit, seed)
    found_fit = {name: len(found) for name, found in (("val", val), ("train", train)) if found is not None}
    val, train = (found and at_most(found, limit_fit, seed) for found in (val, train))
    groups: dict[str, dict[str, ImageSet]] = {group: {} for group in _GROUPS}
    for group, name, source in ((g, n, s) for g in _GROUPS for n, s in getattr(suite, g).items()):
        if source.images is not None or known is not None:
            found = opened(f"{group} {name}", source, known)
            groups[group] |= {} if found is None else {name: at_most(found, limit, seed)}
    if known is None or val is None or (missing and not (available and (groups["near"] or groups["far"]))):
        raise InputError(_lacking(suite, missing, known is not None and val is not None, groups))
    tested = {**groups["near"], **groups["far"]}
    refuse_shared("id", known, {"val": val, **tested})
    refuse_shared("val", val, tested)
    for name, found in groups["ood_val"].items():
        refuse_shared(f"ood_val {name}", found, tested)
    return SuiteImages(known, val, train, **groups, missing=missing, found=found_fit, name=suite.name)


def _lacking(suite: Suite, missing: Mapping[str, str], known: bool, groups: Mapping[str, Any]) -> str:
    sets = "; ".join(f"{label} (expected: {place})" for label, place in missing.items())
    rest = "or run the rest with available=True"
    if not known:
        rest = "the ID images are always needed"
    elif not groups["near"] and not groups["far"]:
        rest = "at least one OOD set is needed"
    where = "Put them there, or say where the suite's files are with data="
    return f"The suite {suite.name} lacks {len(missing)} of its sets: {sets}. {where}; {rest}."


def _suite(record: dict[str, Any], stem: str, base: Path, data: Path | None) -> Suite:
    known = ("name", "note", "root", *_PARTS, *_GROUPS)
    if unknown := sorted(set(record) - set(known)):
        raise InputError(f"{', '.join(unknown)} means nothing here; use {', '.join(known)}.")
    if "id" not in record:
        raise InputError("the ID test images are missing; give id = PATH.")
    base = data if data is not None else base / _expanded(str(record.get("root", "")))
    parts: dict[str, Any] = {part: _source(record[part], base) for part in _PARTS if part in record}
    groups: dict[str, Any] = {}
    for group in _GROUPS:
        entries = record.get(group, {})
        if not isinstance(entries, Mapping):
            raise InputError(f"{group} = {entries!r}; give a table of named sets: [{group}], then NAME = PATH.")
        groups[group] = {name: _source(entry, base) for name, entry in entries.items()}
    return Suite(str(record.get("name", stem)), **parts, **groups, note=str(record.get("note", "")))


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
    if text is None or text.startswith(("digits:", DATASET)):
        return text
    expanded = _expanded(text)
    return expanded if is_url(expanded) else str(base / expanded)


def _expanded(text: str) -> str:
    for match in re.finditer(r"\$(?:(\w+)|\{(\w+)\})", text):
        name = match[1] or match[2]
        if name not in os.environ:
            raise InputError(f"the path {text} needs the environment variable {name}, which is not set; set it.")
    return os.path.expanduser(os.path.expandvars(text))


def _entries(text: str, group: str) -> list[tuple[str, Source]]:
    """The set, or sets, that one text stands for."""
    if group == "shifted" and text == "all":
        return [(str(change), Source(None, corrupt=change)) for change in all_corruptions()]
    name, place = name_and_path(text)
    if group == "shifted" and place.partition(":")[0] in KINDS and not Path(place).exists():
        return [(name, Source(None, corrupt=Corruption.parse(place)))]
    return [(name, Source(place))]


def name_and_path(text: str) -> tuple[str, str]:
    """Name and path from ``NAME=PATH`` or ``PATH``; if the part before ``=`` holds a slash, all of it is a path.

    A glob without a name is called like the last folder on the way to it that has no wildcard.
    """
    name, equals, place = text.partition("=")
    if not equals or "/" in name or os.sep in name:
        path = Path(text)
        name, place = (path.resolve().name if path.is_dir() else path.stem), text
        if glob.has_magic(text) and not path.exists():
            name = next(part for part in reversed(path.absolute().parts) if not glob.has_magic(part))
    if not name or not place:
        raise InputError(f"The set {text!r} lacks a name or a path; give PATH or NAME=PATH.")
    return name, place
