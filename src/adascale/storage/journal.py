"""Result rows: an append-only journal while the work runs, then CSV, JSON lines or Parquet in one piece."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from adascale.core.errors import InputError
from adascale.core.extras import optional

Row = Mapping[str, Any]
SUFFIXES = (".csv", ".jsonl", ".parquet")


class Journal:
    """``FILE.part``: a first line with a key, then one JSON row a line. The same key resumes, another starts over."""

    def __init__(self, output: str | Path, key: str) -> None:
        self.output, self.key = Path(output), key
        self.path = self.output.with_name(self.output.name + ".part")
        if self.output.suffix.lower() not in SUFFIXES:
            raise InputError(f"The output {self.output} must end in {', '.join(SUFFIXES)}.")
        if self.output.is_dir():
            raise InputError(f"The output {self.output} is a folder; name a file in it.")
        if self.output.suffix.lower() == ".parquet":
            optional("pyarrow", "parquet")  # better now than after hours of work

    def done(self) -> int:
        """Rows already there. A last line that was cut off is dropped."""
        if not self.path.is_file():
            return 0
        lines = self.path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if not whole or whole[0] != self._first_line().encode():
            self.path.unlink()
            return 0
        if len(whole) < len(lines):
            os.truncate(self.path, sum(map(len, whole)))
        return len(whole) - 1

    def append(self, rows: Iterable[Row]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not self.path.exists()
        with open(self.path, "a", encoding="utf8") as file:
            if fresh:
                file.write(self._first_line())
            file.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)

    def _first_line(self) -> str:
        return json.dumps({"key": self.key}) + "\n"

    def rows(self) -> Iterator[Row]:
        with open(self.path, encoding="utf8") as file:
            next(file)
            yield from map(json.loads, file)

    def finish(self, columns: Sequence[str]) -> None:
        """Turn the journal into the output file."""
        temporary = self.output.with_name(f".{self.output.name}.tmp")
        if self.output.suffix.lower() == ".parquet":
            _write_parquet(temporary, self.rows(), columns)
        else:
            write = write_csv if self.output.suffix.lower() == ".csv" else write_jsonl
            with open(temporary, "w", encoding="utf8", errors="surrogateescape", newline="") as file:
                write(file, self.rows(), columns)
        os.replace(temporary, self.output)
        self.path.unlink()


def write_csv(file: IO[str], rows: Iterable[Row], columns: Sequence[str], header: bool = True) -> None:
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()} for row in rows)


def write_jsonl(file: IO[str], rows: Iterable[Row], columns: Sequence[str], header: bool = True) -> None:
    file.writelines(json.dumps({name: row[name] for name in columns}, allow_nan=False) + "\n" for row in rows)


def _write_parquet(path: Path, rows: Iterable[Row], columns: Sequence[str]) -> None:
    pyarrow, parquet = optional("pyarrow", "parquet"), optional("pyarrow.parquet", "parquet")
    schema = pyarrow.schema([(name, _parquet_type(pyarrow, name)) for name in columns])
    with parquet.ParquetWriter(path, schema) as writer:
        for chunk in _chunks(rows, 10_000):
            writer.write_table(pyarrow.Table.from_pylist(chunk, schema=schema))


def _parquet_type(pyarrow: Any, column: str) -> Any:
    kinds = {"image": "string", "error": "string", "is_ood": "bool_", "early": "bool_", "prediction": "int64"}
    return getattr(pyarrow, kinds.get(column.rpartition(".")[2], "float64"))()


def _chunks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    for row in rows:
        # Parquet holds UTF-8 only; a file name need not be.
        chunk.append({**row, "image": row["image"].encode("utf8", "surrogateescape").decode("utf8", "replace")})
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
