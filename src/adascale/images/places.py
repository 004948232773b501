"""Texts that name images on disk: paths and globs. Nothing here imports Pillow or PyTorch."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
LIST_SUFFIXES = frozenset((".txt", ".lst", ".list"))
ARRAY_SUFFIX = ".npz"
ADVICE = "give a folder, an image, a glob, an image list or an .npz"


def expanded(text: str | os.PathLike[str]) -> list[str]:
    """The paths that a text stands for: itself if there is such a file or folder, else what it matches as a glob.

    Of the matches of a glob, images, .npz and folders count; ``**`` matches folders of any depth, whose files are
    matched one by one. A text that names nothing is returned as it is, for the message about it.
    """
    given = os.fspath(text)
    if given == "-" or os.path.exists(given) or not glob.has_magic(given):
        return [given]
    usable = (*SUFFIXES, ARRAY_SUFFIX)
    matched = sorted(glob.glob(given, recursive=True))
    folders = set() if "**" in given else set(filter(os.path.isdir, matched))
    return [path for path in matched if path in folders or path.lower().endswith(usable)] or [given]


def name_under(given: str, file: Path, folder: Path) -> str:
    """The name of a file in a folder: the folder as it was given, then the path in it; nothing is put before ``.``."""
    inside = str(file.relative_to(folder))
    return inside if Path(given) == Path(".") else os.path.join(given, inside)


def as_texts(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """One path or several, as a list of texts with globs expanded."""
    several = [source] if isinstance(source, str | os.PathLike) else source
    return [path for text in several for path in expanded(text)]
