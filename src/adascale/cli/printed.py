"""Rows on stdout, as they come or, if the last image decides about the first, all at the end."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence

from adascale.core.errors import AdascaleWarning
from adascale.decision.discovered import Discoveries, discovered, with_discovery
from adascale.decision.ood_detector import OODDetector
from adascale.maths.discoveries import limits
from adascale.storage.rows import Row, write_csv, write_jsonl


class Printed:
    """Rows on stdout as CSV or JSON lines. waits: keep them until `finish`.

    As a context it prints the rows that wait if the work is interrupted, so that they are not lost.
    """

    def __init__(self, columns: Sequence[str], as_json: bool, waits: bool) -> None:
        self._columns, self._as_json, self._waits = columns, as_json, waits
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
        """Print the rows that wait, with their discoveries."""
        if self._waits:
            self._print(discovered(self._rows, found), with_discovery(self._columns, found))

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._rows:
            self._print(self._rows, self._columns)

    def _print(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        (write_jsonl if self._as_json else write_csv)(sys.stdout, rows, columns, header=not self._begun)
        self._begun = True


def note_limits(found: Mapping[str, Discoveries], detectors: Mapping[str, OODDetector], fdr: float | None) -> None:
    """Say so where too few calibration images are the reason that there are no discoveries."""
    if fdr is None:
        return
    for (prefix, one), detector in zip(found.items(), detectors.values(), strict=True):
        images = 0 if detector.calibration is None else len(detector.calibration.scores)
        if not one.number and (reason := limits(images, one.images, fdr)):
            warnings.warn(f"{prefix.replace('.', ': ')}{reason}", AdascaleWarning, stacklevel=2)
