"""Rows on stdout, as they come or, if the last image decides about the first, all at the end."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from adascale.cli.console import say
from adascale.core.errors import AdascaleWarning
from adascale.decision.discovered import COLUMN, Discoveries, discovered, with_discovery
from adascale.maths.discoveries import limits
from adascale.storage.remote import Place
from adascale.storage.rows import JSON_END, Row, write_csv, write_json, write_jsonl


class Printed:
    """Rows on stdout as CSV, JSON lines or one JSON document. waits: keep them until `finish`.

    As a context it prints the rows that wait if the work is interrupted, so that they are not lost.
    """

    def __init__(self, columns: Sequence[str], form: Literal["csv", "json", "jsonl"], waits: bool) -> None:
        self._columns, self._form, self._waits = columns, form, waits
        self._begun = False
        self._rows: list[Row] = []

    def append(self, rows: Iterable[Row]) -> None:
        if self._waits:
            self._rows += rows
        else:
            self._print(rows, self._columns)

    def rows(self) -> Iterator[Row]:
        """Those that wait."""
        return iter(self._rows)

    def finish(self, found: Mapping[str, Discoveries]) -> None:
        """Print the rows that wait, with their discoveries, and the end of a document."""
        if self._waits:
            self._print(discovered(self._rows, found), with_discovery(self._columns, found))
        self._close()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._rows:
            self._print(self._rows, self._columns)
        if kind is not None:
            self._close()

    def _print(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        write = {"csv": write_csv, "json": write_json, "jsonl": write_jsonl}[self._form]
        write(sys.stdout, rows, columns, header=not self._begun)
        self._begun = True

    def _close(self) -> None:
        if self._form == "json" and self._begun:
            sys.stdout.write(JSON_END)


def tell_scored(output: Place, counts: Mapping[str, Any], as_json: bool, found: Mapping[str, Discoveries] = {}) -> None:
    """What was written: a line on stderr, or a document on stdout. counts: ``rows, failed, ood`` of all rows."""
    rows, failed, ood = counts["rows"], counts["failed"], counts["ood"]
    if as_json:
        told = {"images": rows, "scored": rows - failed, "failed": failed, "ood": ood}
        if found:
            told["discoveries"] = {f"{prefix}{COLUMN}": one.number for prefix, one in found.items()}
        print(json.dumps({"file": str(output), **told}))
    else:
        each = ", ".join(f"{column.removesuffix('is_ood')}{n}" for column, n in ood.items())
        marked = ", ".join(f"{prefix}{one.number}" for prefix, one in found.items())
        late = f"; discoveries: {marked}" if marked else ""
        say(f"{output}: {rows - failed} images scored, out-of-distribution: {f'{each}{late}'.replace('.', ' ')}")


def note_limits(found: Mapping[str, Discoveries], calibration_images: Sequence[int], fdr: float | None) -> None:
    """Say so where too few calibration images, of which each detector has so many, leave no discoveries."""
    if fdr is None:
        return
    for (prefix, one), images in zip(found.items(), calibration_images, strict=True):
        if not one.number and (reason := limits(images, one.images, fdr)):
            warnings.warn(f"{prefix.replace('.', ': ')}{reason}", AdascaleWarning, stacklevel=2)
