"""An append-only journal of result rows, so that long work can resume; at the end it becomes the output file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.storage.rows import SUFFIXES, Row, write_rows


class Journal:
    """``FILE.part``: the first line holds a key, every other line one row as JSON.

    A journal with the same key is resumed; one with another key is deleted.
    """

    def __init__(self, output: str | Path, key: str) -> None:
        self.output, self.key = Path(output), key
        self.path = self.output.with_name(self.output.name + ".part")
        if self.output.suffix.lower() not in SUFFIXES:
            raise InputError(f"The output {self.output} must end in {', '.join(SUFFIXES)}.")
        if self.output.is_dir():
            raise InputError(f"The output {self.output} is a folder; name a file in it.")
        if self.output.suffix.lower() == ".parquet":
            optional("pyarrow", "parquet")  # a missing package is reported now, not after hours of work

    def done(self) -> int:
        """The number of complete rows in the journal. An incomplete last line is removed."""
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
        """Write the output file and delete the journal."""
        write_rows(self.output, self.rows(), columns)
        self.path.unlink()
