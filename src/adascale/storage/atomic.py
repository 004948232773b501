"""Files that appear complete or not at all."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from adascale.core.errors import AdascaleError, InputError
from adascale.storage.remote import Place, Url, as_place

Somewhere = TypeVar("Somewhere", bound=Place)
_TEMPORARY = ".tmp"
_OWNER = re.compile(r"\.(\d+)-\w+\.tmp$")


class UnwritableError(InputError, OSError):
    """The system does not let us write a file, for example because the disk is full."""


@contextmanager
def replacing(path: str | Place) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; what was written there becomes ``path`` in one step.

    A reader sees the old file or the new one, never a part of it. If the block raises, the temporary file is removed;
    what the system refuses, such as writing to a full disk, is an `UnwritableError`. Of a URL, the temporary file is
    uploaded in one step.
    """
    path = as_place(path)
    if isinstance(path, Url):
        with _uploading(path) as temporary:
            yield temporary
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(_TEMPORARY, f".{path.name}.{os.getpid()}-", path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.umask(mask := os.umask(0))  # the only way to read it
        temporary.chmod(0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # such as a full disk
            raise unwritable(path, error) from error
        raise


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files that killed processes left of a file in this folder, or of any file anywhere in it."""
    found = folder.rglob(f".*{_TEMPORARY}") if name is None else folder.glob(f".{glob.escape(name)}.*{_TEMPORARY}")
    for path in found:
        owner = _OWNER.search(path.name)
        if owner is not None and not _runs(int(owner[1])):
            path.unlink(missing_ok=True)


def remove_folder(folder: Place) -> None:
    """Remove a folder with all that is in it, as far as that can be done."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(AdascaleError, OSError):
        for one in folder.find():
            one.url.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    """Whether there is a process of this number; where that cannot be told, there is."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


@contextmanager
def _uploading(url: Url) -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="adascale-") as folder:
            yield Path(folder) / url.name
            url.put(Path(folder) / url.name)
    except OSError as error:  # a full disk here, or no such bucket there
        raise unwritable(url, error) from error


def unwritable(path: Place, error: OSError) -> UnwritableError:
    return UnwritableError(f"{path} cannot be written: {error.strerror or error}.")


def write_text(path: Somewhere, text: str) -> Somewhere:
    """Write a text file in one step."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape", newline="\n")
    return path
