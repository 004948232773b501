"""Rows of results read back, from a file of `adascale.storage.rows` or from standard input, also while it grows."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.storage.remote import Place, as_place, is_url, local_copy
from adascale.storage.rows import SUFFIXES, Row

STDIN = "-"
GROWING = (".csv", ".jsonl")


def read_rows(place: str, waiting: Callable[[], None] | None = None) -> Iterator[Row]:
    """The rows of a file (``.csv``, ``.json``, ``.jsonl``, ``.parquet``), or CSV or JSON lines on stdin (``-``).

    Values of CSV are texts. waiting: the file grows; this is called whenever there is nothing more in it yet.

    For example:

        >>> _ = Path("rows.csv").write_text("image,score\\na.png,0.5")
        >>> list(read_rows("rows.csv"))
        [{'image': 'a.png', 'score': '0.5'}]
    """
    if place == STDIN:
        return _text_rows(sys.stdin, None, place)
    suffix = as_place(place).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{place} must end in {', '.join(SUFFIXES)}, or be - for standard input.")
    if waiting is not None and (suffix not in GROWING or is_url(place)):
        raise InputError(f"{place} cannot be followed; only local {' and '.join(GROWING)} files grow line by line.")
    if is_url(place):
        return _rows_at(as_place(place))
    if suffix == ".parquet":
        return _parquet_rows(place)
    if suffix == ".json":
        return iter(_json_rows(place))
    return _text_rows(_lines(Path(place), waiting), suffix, place)


def _rows_at(url: Place) -> Iterator[Row]:
    with local_copy(url) as file:
        yield from read_rows(str(file))


def _lines(path: Path, waiting: Callable[[], None] | None) -> Iterator[str]:
    """The lines of a file; of a growing one only those that are complete."""
    with open(path, encoding="utf8", errors="surrogateescape", newline="") as file:
        begun = ""
        while True:
            line = begun + file.readline()
            if line.endswith("\n") or (line and waiting is None):
                begun = ""
                yield line
            elif waiting is None:
                return
            else:
                begun = line
                waiting()


def _text_rows(lines: Iterable[str], suffix: str | None, place: str) -> Iterator[Row]:
    rest = iter(lines)
    first = list(islice(rest, 1))
    whole = chain(first, rest)
    if suffix == ".jsonl" or (suffix is None and first and first[0].lstrip().startswith("{")):
        yield from (_parsed(line, place) for line in whole if line.strip())
    else:
        yield from csv.DictReader(whole)


def _parsed(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"{place}: {line.strip()[:60]!r} is not a JSON object; give one on each line.") from error
    if not isinstance(row, dict):
        raise InputError(f"{place}: {line.strip()[:60]!r} is not a JSON object; give one on each line.")
    return row


def _json_rows(place: str) -> list[Any]:
    try:
        rows = json.loads(Path(place).read_text("utf8"))
    except ValueError as error:
        raise InputError(f"{place} is not a JSON document ({error}).") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{place} is not a list of rows; give the output of adascale score.")
    return rows


def _parquet_rows(place: str) -> Iterator[Row]:
    parquet = optional("pyarrow.parquet", "parquet")
    try:
        for batch in parquet.ParquetFile(place).iter_batches():
            yield from batch.to_pylist()
    except (OSError, ValueError, NotImplementedError) as error:  # what pyarrow raises, in several lines
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{place} is damaged or no Parquet file ({reason}).") from error
