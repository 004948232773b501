"""Rows of results as CSV, JSON, JSON lines or Parquet, and the journal that lets long work resume."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.storage.atomic import replacing, unwritable
from adascale.storage.remote import Place, as_place, unfinished

Row = Mapping[str, Any]
SUFFIXES = (".csv", ".json", ".jsonl", ".parquet")
JSON_END = "\n]\n"
_CHUNK = 10_000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_PARQUET_TYPES = {
    **{"image": "string", "error": "string", "class": "string", "prediction": "int64"},
    **{"is_ood": "bool_", "discovery": "bool_", "early": "bool_"},
}


def write_rows(path: Place, rows: Iterable[Row], columns: Sequence[str]) -> None:
    """Write a file in the format of its suffix, in one step."""
    suffix = path.suffix.lower()
    with replacing(path) as temporary:
        if suffix == ".parquet":
            return _write_parquet(temporary, rows, columns)
        with open(temporary, "w", encoding="utf8", errors="surrogateescape", newline="") as file:
            {".csv": write_csv, ".json": write_json}.get(suffix, write_jsonl)(file, rows, columns)
            file.write(JSON_END if suffix == ".json" else "")


def write_csv(file: IO[str], rows: Iterable[Row], columns: Sequence[str], header: bool = True) -> None:
    """Comma-separated values. What a spreadsheet would take for a formula is marked: see `_cell`."""
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    for row in rows:
        cells = {name: _cell(name, value) for name, value in row.items()}
        if any(isinstance(value, str) and "\r" in value for value in cells.values()):
            # Some versions of Python do not quote a carriage return, which ends the line for most readers.
            csv.DictWriter(file, columns, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC).writerow(cells)
        else:
            writer.writerow(cells)


def _cell(column: str, value: Any) -> Any:
    """A text that begins like a formula gets ``./`` before it if it is the path of an image, else an apostrophe."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value.startswith(_FORMULA) and value != "-":  # that is standard input
        return f"./{value}" if column == "image" else f"'{value}"
    return value


def write_jsonl(file: IO[str], rows: Iterable[Row], columns: Sequence[str], header: bool = True) -> None:
    file.writelines(_as_json(row, columns) + "\n" for row in rows)


def write_json(file: IO[str], rows: Iterable[Row], columns: Sequence[str], header: bool = True) -> None:
    """A JSON list of the rows, left open for more of them (``header=False``); ``JSON_END`` closes it."""
    file.write("[" if header else "")
    for index, row in enumerate(rows):
        file.write(("\n" if header and not index else ",\n") + _as_json(row, columns))


def _as_json(row: Row, columns: Sequence[str]) -> str:
    return json.dumps({name: row[name] for name in columns}, allow_nan=False)


def _write_parquet(path: Path, rows: Iterable[Row], columns: Sequence[str]) -> None:
    pyarrow, parquet = optional("pyarrow", "parquet"), optional("pyarrow.parquet", "parquet")
    types = {name: _PARQUET_TYPES.get(name.rpartition(".")[2], "float64") for name in columns}
    schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in types.items()])
    # Parquet stores UTF-8 only, but a file name may hold other bytes.
    clean = ({**row, "image": row["image"].encode("utf8", "surrogateescape").decode("utf8", "replace")} for row in rows)
    with parquet.ParquetWriter(path, schema) as writer:
        while chunk := list(islice(clean, _CHUNK)):
            writer.write_table(pyarrow.Table.from_pylist(chunk, schema=schema))


class Journal:
    """``FILE.part``, to which rows are appended: the first line holds a key, every other line one row as JSON.

    A journal with the same key is resumed; one with another key is deleted. At the end it becomes the output file. The
    journal of a URL is on this machine (`unfinished`), and the output is uploaded once, when it is complete.
    """

    def __init__(self, output: str | Place, key: str) -> None:
        self.output, self._first_line = as_place(output), json.dumps({"key": key}) + "\n"
        self.path = unfinished(self.output, ".part")
        if self.output.suffix.lower() not in SUFFIXES:
            raise InputError(f"The output {self.output} must end in {', '.join(SUFFIXES)}.")
        if self.output.is_dir():
            raise InputError(f"The output {self.output} is a folder; name a file in it.")
        if self.output.suffix.lower() == ".parquet":
            optional("pyarrow", "parquet")  # a missing package is reported now, not after hours of work

    def done(self, batch_size: int = 1, total: int | None = None) -> int:
        """The number of complete rows in the journal; what follows them is removed.

        batch_size: rows that are no full batch are removed too, unless they are all (``total``), because the same
        batches give the same numbers to the last bit.
        """
        if not self.path.is_file():
            return 0
        lines = self.path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if not whole or whole[0] != self._first_line.encode():
            self.path.unlink()
            return 0
        rows = len(whole) - 1
        kept = rows if rows == total else rows - rows % batch_size
        if kept + 1 < len(lines):
            os.truncate(self.path, sum(map(len, whole[: kept + 1])))
        return kept

    def append(self, rows: Iterable[Row]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not self.path.exists()
        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        try:
            with open(self.path, "a", encoding="utf8") as file:
                file.write(self._first_line + lines if fresh else lines)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def rows(self) -> Iterator[Row]:
        with open(self.path, encoding="utf8") as file:
            next(file)
            yield from map(json.loads, file)

    def finish(self, columns: Sequence[str], total: int, rows: Iterable[Row] | None = None) -> None:
        """Write the output file and delete the journal, if it has so many rows in all.

        rows: those of the journal, if something was added to them.
        """
        write_rows(self.output, self._all(self.rows() if rows is None else rows, total), columns)
        self.path.unlink()

    def _all(self, rows: Iterable[Row], total: int) -> Iterator[Row]:
        count = 0
        for count, row in enumerate(rows, 1):  # noqa: B007 (the last one counts)
            yield row
        if count != total:
            raise InputError(
                f"{self.path} has {count} rows for {total} images, so {self.output} was not written; something else "
                "changed that file. Delete it and run again."
            )
