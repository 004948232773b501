"""Places elsewhere: URLs that fsspec understands (``s3://``, ``gs://``, ``hf://``, ``memory://`` ...).

`as_place` turns what a user gave into a ``Path`` or a `Url`. A `Url` has the part of ``pathlib.Path`` that this library
uses, so most code takes either; local paths never come near fsspec. Objects are read whole or by ranges and written by
one upload of the final key, which a reader sees completely or not at all. Object stores have no locks: two runs on one
machine that write one URL are kept apart as for a file (`unfinished`), and of two machines the last upload stands.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import posixpath
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from adascale.core.errors import AdascaleError, InputError, MissingExtraError
from adascale.core.extras import EXTRAS
from adascale.core.folders import cache_folder

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")  # two letters at least: C:// is a disk
_LOCAL = ("file", "local")
_VERSIONS = ("ETag", "etag", "md5Hash", "md5", "oid", "generation", "mtime", "created", "LastModified", "updated")
_ONE_OBJECT = ("AccessDenied", "403", "Forbidden")  # a store may say so of one object, even of one that is missing
_WITH_BUCKETS = ("s3", "s3a", "gs", "gcs")
_CREDENTIALS = {
    "s3": "check the bucket, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), and AWS_ENDPOINT_URL",
    "gs": "check the bucket and GOOGLE_APPLICATION_CREDENTIALS",
    "hf": "check the name of the repository, and HF_TOKEN if it is private",
}


class PlaceError(AdascaleError, RuntimeError):
    """A store does not answer, or refuses. Not the fault of one image, so that long work stops and can be resumed."""


class Found(NamedTuple):
    """An object in a folder of a store. inside: its path in the folder. version: changes with the content."""

    url: Url
    inside: str
    size: int
    version: str


@dataclass(frozen=True, order=True)
class Url:
    """A place that fsspec understands, with the names that ``pathlib.Path`` has."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def scheme(self) -> str:
        return self.text.partition("://")[0].lower()

    @property
    def name(self) -> str:
        return self.text.rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return posixpath.splitext(self.name)[1]

    @property
    def stem(self) -> str:
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> Url:
        scheme, _, rest = self.text.rstrip("/").partition("://")
        return Url(f"{scheme}://{posixpath.dirname(rest)}")

    def __truediv__(self, inside: str) -> Url:
        """A place in this folder; ``..`` in it goes up, as in a file system."""
        scheme, _, rest = self.text.partition("://")
        return Url(f"{scheme}://{posixpath.normpath(posixpath.join(rest, inside))}")

    def with_name(self, name: str) -> Url:
        return self.parent / name

    def resolve(self) -> Url:
        """Itself, as it starts nowhere else."""
        return self

    def exists(self) -> bool:
        return self._kind() is not None

    def is_file(self) -> bool:
        return self._kind() == "file"

    def is_dir(self) -> bool:
        return self._kind() == "directory"

    def read_bytes(self, start: int | None = None, stop: int | None = None) -> bytes:
        """The object, or a range of its bytes."""
        with self._told("read") as (system, path):
            data: bytes = system.cat_file(path, start=start, end=stop)
            return data

    def info(self) -> tuple[int, str]:
        """The size of the object, and a text that changes with its content."""
        with self._told("read") as (system, path):
            return _facts(system.info(path))

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The object as a file to read and seek in; a few MiB of it are in memory."""
        with self._told("read") as (system, path):
            opened = system.open(path, "rb")
        with opened as file:  # what is wrong with the content is for the reader to say
            yield file

    def get(self, file: Path) -> None:
        """Download the object."""
        with self._told("read") as (system, path):
            system.get_file(path, str(file))

    def put(self, file: Path) -> None:
        """Upload a file in one step."""
        with self._told("written") as (system, path):
            system.put_file(str(file), path)

    def check_writable(self) -> None:
        """Refuse now what an upload after hours of work would be refused for: no driver, no credentials, no bucket."""
        with self._told("written") as (system, path):
            bucket = path.strip("/").partition("/")[0]
            try:
                if self.scheme in _WITH_BUCKETS:
                    system.info(bucket)
            except FileNotFoundError as error:
                raise PlaceError(
                    f"{self.text} cannot be written: there is no bucket {bucket}; make it first."
                ) from error
            except PermissionError as error:
                if _code(error) not in _ONE_OBJECT:  # it may be allowed to write, but not to look at the bucket
                    raise

    def unlink(self, missing_ok: bool = False) -> None:
        with self._told("removed") as (system, path):
            try:
                system.rm_file(path)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def find(self) -> list[Found]:
        """Every object in this folder and its subfolders, in the order that local files have."""
        with self._told("listed") as (system, path):
            system.invalidate_cache()
            root, folder = path.rstrip("/"), self.text.rstrip("/")
            found = []
            for name, info in system.find(path, detail=True).items():
                if inside := name[len(root) :].lstrip("/"):  # else it is a file, or the mark of a folder
                    found.append(Found(Url(f"{folder}/{inside}"), inside, *_facts(info)))
            return sorted(found, key=lambda one: one.inside.split("/"))

    def glob(self, pattern: str) -> list[Url]:
        """The objects in this folder, not in subfolders, whose names match."""
        matching = (one for one in self.find() if "/" not in one.inside and fnmatch.fnmatchcase(one.inside, pattern))
        return [one.url for one in matching]

    def matches(self) -> list[Url]:
        """The files and folders that this URL stands for as a glob."""
        with self._told("listed") as (system, _):
            system.invalidate_cache()
            return [Url(f"{self.scheme}://{path.lstrip('/')}") for path in sorted(system.glob(self.text))]

    def _kind(self) -> str | None:
        try:
            with self._told("read") as (system, path):
                system.invalidate_cache()
                return str(system.info(path)["type"])
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise self._failed("read", error) from error

    @contextmanager
    def _told(self, done: str) -> Iterator[tuple[Any, str]]:
        """fsspec's file system and the path in it. What goes wrong is told in one line; a missing object stays that."""
        try:
            yield _file_system(self)
        except (AdascaleError, FileNotFoundError, IsADirectoryError):
            raise
        except Exception as error:
            if isinstance(error, PermissionError) and _code(error) in _ONE_OBJECT and done == "read":
                raise PermissionError("access is denied") from error
            raise self._failed(done, error) from error

    def _failed(self, done: str, error: Exception) -> PlaceError:
        reason = " ".join(str(error).split()).rstrip(".")[:200] or type(error).__name__
        advice = _CREDENTIALS.get(self.scheme, "check the address and the credentials")
        return PlaceError(f"{self.text} cannot be {done}: {reason}; {advice}.")


Place = Path | Url


def is_url(text: object) -> bool:
    """Whether a text names a place elsewhere; ``file://`` is another spelling of a local path."""
    match = _SCHEME.match(str(text))
    return match is not None and match[1].lower() not in _LOCAL


def as_place(given: str | os.PathLike[str] | Url) -> Place:
    """The local path, or the URL."""
    if isinstance(given, Url):
        return given
    text = os.fspath(given)
    match = _SCHEME.match(text)
    if match is None:
        return Path(text)
    return Path(text[match.end() :]) if match[1].lower() in _LOCAL else Url(text)


def check_local(given: object, what: str) -> None:
    """Refuse a URL, also one that ``Path`` has taken a slash of, where only a local path will do."""
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", str(given)):
        raise InputError(f"{given}: {what} must be a local path; docs/places.md says what may be a URL.")


def unfinished(output: Place, ending: str) -> Path:
    """Where unfinished work for an output is kept on this machine: beside it; for a URL, in the user's cache folder."""
    if isinstance(output, Path):
        return output.with_name(output.name + ending)
    digest = hashlib.sha256(output.text.encode("utf8", "surrogateescape")).hexdigest()[:16]
    return cache_folder() / "unfinished" / f"{digest}-{output.name}{ending}"


@contextmanager
def local_copy(place: Place) -> Iterator[Path]:
    """A file on this machine with the content: the file itself, or a download that is removed afterwards."""
    if isinstance(place, Path):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="adascale-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / place.name
        place.get(file)
        yield file


@contextmanager
def opened(place: Place) -> Iterator[IO[bytes]]:
    """A file or an object, to read and to seek in."""
    with place.open() if isinstance(place, Url) else open(place, "rb") as file:
        yield file


def version_of(place: Place) -> str:
    """A text that changes with the content of a file or an object."""
    if isinstance(place, Url):
        return " ".join(map(str, (place, *place.info())))
    status = place.stat()
    return f"{place.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _file_system(url: Url) -> tuple[Any, str]:
    """fsspec's file system of a URL and the path in it, or one line about the driver that is missing."""
    import fsspec
    from fsspec.registry import known_implementations

    try:
        system, path = fsspec.core.url_to_fs(url.text)
        return system, str(path)
    except ImportError as error:
        package = known_implementations[url.scheme]["class"].partition(".")[0]
        wanted = f"'adascale[{EXTRAS[package]}]'" if package in EXTRAS else package
        raise MissingExtraError(f"{url} needs {package}; install it with: pip install {wanted}") from error
    except ValueError as error:
        if url.scheme in known_implementations:
            raise
        raise InputError(f"{url}: nothing here reads {url.scheme}://; give s3://, gs://, hf:// or a path.") from error


def _code(error: Exception) -> str | None:
    """What S3 calls an error."""
    response = getattr(error.__cause__, "response", None) or {}
    code: str | None = response.get("Error", {}).get("Code")
    return code


def _facts(info: dict[str, Any]) -> tuple[int, str]:
    version = next((str(info[name]) for name in _VERSIONS if info.get(name)), "")
    return int(info.get("size") or 0), version
