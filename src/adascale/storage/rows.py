"""Rows of results as CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from adascale.core.extras import optional
from adascale.storage.atomic import replacing

Row = Mapping[str, Any]
SUFFIXES = (".csv", ".jsonl", ".parquet")
_CHUNK = 10_000
_PARQUET_TYPES = {"image": "string", "error": "string", "is_ood": "bool_", "early": "bool_", "prediction": "int64"}


def write_rows(path: Path, rows: Iterable[Row], columns: Sequence[str]) -> None:
    """Write a file in the format of its suffix, in one step."""
    suffix = path.suffix.lower()
    with replacing(path) as temporary:
        if suffix == ".parquet":
            return _write_parquet(temporary, rows, columns)
        with open(temporary, "w", encoding="utf8", errors="surrogateescape", newline="") as file:
            (write_csv if suffix == ".csv" else write_jsonl)(file, rows, columns)


def write_csv(file: IO[str], rows: Iterable[Row], columns: Sequence[str], header: bool = True) -> None:
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()} for row in rows)


def write_jsonl(file: IO[str], rows: Iterable[Row], columns: Sequence[str], header: bool = True) -> None:
    file.writelines(json.dumps({name: row[name] for name in columns}, allow_nan=False) + "\n" for row in rows)


def _write_parquet(path: Path, rows: Iterable[Row], columns: Sequence[str]) -> None:
    pyarrow, parquet = optional("pyarrow", "parquet"), optional("pyarrow.parquet", "parquet")
    types = {name: _PARQUET_TYPES.get(name.rpartition(".")[2], "float64") for name in columns}
    schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in types.items()])
    # Parquet stores UTF-8 only, but a file name may hold other bytes.
    clean = ({**row, "image": row["image"].encode("utf8", "surrogateescape").decode("utf8", "replace")} for row in rows)
    with parquet.ParquetWriter(path, schema) as writer:
        while chunk := list(islice(clean, _CHUNK)):
            writer.write_table(pyarrow.Table.from_pylist(chunk, schema=schema))
