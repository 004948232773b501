"""Parquet files with the bytes of an encoded image in each row, such as those of the Hugging Face hub.

The column of images holds bytes, or ``{bytes, path}`` as Hugging Face writes it; it is the one of the first name of
`_IMAGES` that there is, else the only such column. A whole-number column of a name in `_LABELS` holds the labels. One
row group is read at a time, so that its size is the memory that reading takes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from adascale.core.errors import AdascaleError, InputError
from adascale.core.extras import optional
from adascale.images.limits import most_array_bytes
from adascale.images.stored import Entries, Stored
from adascale.storage.remote import Place, opened, version_of

_IMAGES = ("image", "img", "images", "jpg", "jpeg", "png", "webp", "bytes", "content")
_LABELS = ("label", "labels", "class", "cls", "target", "fine_label")
_KEPT_BYTES, _KEPT_GROUPS = 2**28, 2


@dataclass(frozen=True)
class _File:
    """What is known of a file from its footer."""

    place: Place
    column: str
    version: str
    metadata: Any

    def group(self, number: int) -> Any:
        """The images of one row group, as an array of Arrow."""
        with opened(self.place) as raw:
            file = optional("pyarrow.parquet", "parquet").ParquetFile(raw, metadata=self.metadata)
            return file.read_row_group(number, columns=[self.column], use_threads=False).column(0).combine_chunks()

    def group_bytes(self, number: int) -> int:
        """What the images of a row group take in memory."""
        group = self.metadata.row_group(number)
        columns = (group.column(i) for i in range(group.num_columns))
        return sum(one.total_uncompressed_size for one in columns if one.path_in_schema.split(".")[0] == self.column)

    def group_rows(self) -> list[int]:
        return [self.metadata.row_group(number).num_rows for number in range(self.metadata.num_row_groups)]


@dataclass(frozen=True, slots=True)
class Cell(Stored):
    """The image in one row of a row group."""

    file: _File
    group: int
    row: int

    def bytes_needed(self) -> int:
        group = self.file.metadata.row_group(self.group)
        return int(self.file.group_bytes(self.group) // group.num_rows)  # on average

    def read(self) -> bytes:
        images = _groups.get((str(self.file.place), self.file.version, self.group), self._group)
        value = images[self.row].as_py()
        value = value.get("bytes") if isinstance(value, dict) else value
        if value is None:
            raise ValueError("the row has no image bytes")
        return bytes(value)

    def _group(self) -> Any:
        return self.file.group(self.group)

    def identity(self) -> str:
        return f"{self.file.version} {self.group} {self.row}"


class _Groups:
    """The row groups that were read last: at least two, and as many as a bound of bytes allows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Future[Any]] = OrderedDict()

    def get(self, key: Any, read: Callable[[], Any]) -> Any:
        """A row group; threads that want the same one wait for the first of them to read it."""
        with self._lock:
            mine = key not in self._kept
            future = self._kept.setdefault(key, Future())
            self._kept.move_to_end(key)
        if mine:
            try:
                future.set_result(read())
            except BaseException as error:
                future.set_exception(error)
                with self._lock:
                    self._kept.pop(key, None)
            self._tidy()
        return future.result()

    def _tidy(self) -> None:
        with self._lock:
            while len(self._kept) > _KEPT_GROUPS and self._size() > _KEPT_BYTES:
                self._kept.popitem(last=False)

    def _size(self) -> int:
        done = (future for future in self._kept.values() if future.done() and not future.exception())
        return sum(future.result().nbytes for future in done)


_groups = _Groups()


def parquet_entries(place: Place, max_pixels: int, group: int | None = None) -> Entries:
    """The images of a file, or of one row group, named ``[ROW]`` by the row in the file.

    max_pixels: the images of a row group may take ten bytes for each of these pixels.
    """
    file, labels = _read_footer(place)
    sizes = file.group_rows()
    starts = [0, *accumulate(sizes)]
    numbers = range(len(sizes)) if group is None else [group]
    for number in numbers:
        _check_group(file, number, max_pixels)
    cells = [Cell(file, number, row) for number in numbers for row in range(sizes[number])]
    names = [f"[{starts[cell.group] + cell.row}]" for cell in cells]
    span = slice(None) if group is None else slice(starts[group], starts[group + 1])
    return Entries(names, cells, None if labels is None else labels[span])


def group_rows(place: Place) -> list[int]:
    """The number of rows of each row group."""
    return _read_footer(place, labelled=False)[0].group_rows()


def _check_group(file: _File, number: int, max_pixels: int) -> None:
    size, most = file.group_bytes(number), most_array_bytes(max_pixels)
    if size > most:
        raise InputError(
            f"{file.place} has {size} bytes of images in one row group; max_pixels={max_pixels} allows {most}. Write "
            "it with smaller ones, such as row_group_size=1000, or raise the limit."
        )


def _read_footer(place: Place, labelled: bool = True) -> tuple[_File, list[int] | None]:
    parquet = optional("pyarrow.parquet", "parquet")
    try:
        with opened(place) as raw:
            file = parquet.ParquetFile(raw)
            column, label = _image_column(place, file.schema_arrow), _label_column(file.schema_arrow)
            labels = None
            if labelled and label is not None:
                labels = file.read(columns=[label], use_threads=False).column(0).to_pylist()
            metadata = file.metadata
    except AdascaleError:
        raise
    except Exception as error:  # of Arrow, of many kinds
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{place} cannot be read as Parquet ({reason}).") from error
    if not metadata.num_rows:
        raise InputError(f"{place} holds no image; it has no rows.")
    usable = labels is not None and None not in labels
    return _File(place, column, version_of(place), metadata), labels if usable else None


def _image_column(place: Place, schema: Any) -> str:
    types = optional("pyarrow", "parquet").types

    def holds_bytes(kind: Any) -> bool:
        if types.is_struct(kind):
            return kind.get_field_index("bytes") >= 0 and holds_bytes(kind.field("bytes").type)
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    fitting = [field.name for field in schema if holds_bytes(field.type)]
    known = [name for name in _IMAGES if name in fitting]
    if not known and len(fitting) != 1:
        given = ", ".join(schema.names[:8])
        raise InputError(f"{place} has the columns {given}; it needs one of image bytes, named image.")
    return str((known or fitting)[0])


def _label_column(schema: Any) -> str | None:
    types = optional("pyarrow", "parquet").types
    fitting = [field.name for field in schema if types.is_integer(field.type)]
    return next((name for name in _LABELS if name in fitting), None)
