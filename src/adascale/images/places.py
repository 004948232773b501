"""Texts that name images: paths, URLs and globs. Nothing here imports Pillow or PyTorch."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

from adascale.storage.remote import Url, as_place

Given = str | os.PathLike[str] | Url
SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
LIST_SUFFIXES = frozenset((".txt", ".lst", ".list"))
ARRAY_SUFFIX, SHARD_SUFFIXES = ".npz", (".tar", ".parquet")
DATASET = "hf-dataset:"  # NAME_OR_DIR#SPLIT follows
_LABEL = re.compile(r"-?[0-9]{1,18}")  # as many digits as a 64-bit number has in any case
ADVICE = "give a folder, an image, a glob, an image list, an .npz, a .tar or a .parquet, or the URL of one"


def expanded(text: Given) -> list[str]:
    """The paths that a text stands for: itself if there is such a file or folder, else what it matches as a glob.

    Of the matches of a glob, images, .npz and folders count; ``**`` matches folders of any depth, whose files are
    matched one by one. URLs may be globs too. A text that names nothing is returned as it is, for the message about it.
    """
    given = str(text) if isinstance(text, Url) else os.fspath(text)
    usable = (*SUFFIXES, ARRAY_SUFFIX, *SHARD_SUFFIXES)
    if given.startswith(DATASET):
        return [given]
    place = as_place(given)
    if isinstance(place, Url):
        return _expanded_url(place, usable) if glob.has_magic(given) and not place.exists() else [given]
    given = str(place) if "://" in given else given  # file://
    if given == "-" or os.path.exists(given) or not glob.has_magic(given):
        return [given]
    matched = sorted(glob.glob(given, recursive=True))
    folders = set() if "**" in given else set(filter(os.path.isdir, matched))
    return [path for path in matched if path in folders or path.lower().endswith(usable)] or [given]


def _expanded_url(url: Url, usable: Sequence[str]) -> list[str]:
    folders = "**" not in url.text
    chosen = [one for one in url.matches() if one.text.lower().endswith(tuple(usable)) or (folders and one.is_dir())]
    return list(map(str, chosen)) or [url.text]


def present(text: Given) -> bool:
    """Whether there is something of this name. What the library of data sets can load is for that library to say."""
    return str(text).startswith(DATASET) or as_place(text).exists()


def name_under(given: str, file: Path, folder: Path) -> str:
    """The name of a file in a folder: the folder as it was given, then the path in it; nothing is put before ``.``."""
    inside = str(file.relative_to(folder))
    return inside if Path(given) == Path(".") else os.path.join(given, inside)


def as_texts(source: Given | Sequence[Given]) -> list[str]:
    """One path or several, as a list of texts with globs expanded."""
    several = [source] if isinstance(source, str | os.PathLike | Url) else source
    return [path for text in several for path in expanded(text)]


def listed(text: str) -> tuple[list[str], list[int] | None]:
    """Names and labels from the text of an image list; None unless every line has a label.

    Lines end with a line feed, perhaps after a carriage return; no other character ends one, so names may hold it. A
    byte order mark at the start is no part of a name. The last word of a line is a label if it is a whole number.
    """
    names, labels = [], []
    for line in filter(None, (line.strip(" \t\r") for line in text.removeprefix("\ufeff").split("\n"))):
        name, _, last = line.rpartition(" ")
        labelled = name and _LABEL.fullmatch(last)
        names.append(name if labelled else line)
        if labelled:
            labels.append(int(last))
    return names, labels if len(labels) == len(names) else None
