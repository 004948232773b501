"""The monitor of a served detector, kept on disk so that not even a killed process loses an image.

Each batch is appended to a journal before it is answered. From time to time the monitor is saved as a whole, and a new
journal begins; both have the number of images in their names, so a restart takes the last state and what came after it:

    STATE/DETECTOR/CALIBRATION/monitor-1200.safetensors   the monitor after 1,200 images
    STATE/DETECTOR/CALIBRATION/journal-1200.jsonl         the images after that: [score, prediction, name]
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from adascale.core.errors import AdascaleError, InputError
from adascale.monitoring import Monitor
from adascale.monitoring.monitor import fingerprint
from adascale.service.logs import LOG
from adascale.storage.locks import try_lock

SAVED_AFTER = 10_000  # images; more are never read again from a journal
Seen = tuple["float | None", "int | None", "str | None"]  # score, prediction and name of an image


class Watch:
    """A `Monitor` with its files. folder: that of the detector."""

    def __init__(self, folder: Path, calibration: Tensor, classes: Tensor | int) -> None:
        self._folder = folder / fingerprint(calibration)[:16]  # another calibration is another monitor
        self._folder.mkdir(parents=True, exist_ok=True)
        self._own: IO[bytes] = open(self._folder / "lock", "a+b")  # noqa: SIM115 (held as long as the service runs)
        if not try_lock(self._own):
            self._own.close()
            raise InputError(f"Another service uses {self._folder}; give each its own --state folder.")
        self._lock = threading.Lock()
        self._monitor, start = self._restored() or (Monitor(calibration, classes), 0)
        self._saved = start
        self._replay(self._journal_of(start))
        self._journal = _opened(self._journal_of(start))
        self.save()

    def update(self, seen: Iterable[Seen]) -> list[str]:
        """Take images in, first on disk; the alarms that they raised."""
        entries = list(seen)
        lines = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
        with self._lock:
            self._write(lines)
            raised = [alarm.title for entry in entries for alarm in self._take(*entry)]
        if raised or self._monitor.images - self._saved >= SAVED_AFTER:
            self.save()
        return raised

    def summary(self) -> dict[str, Any]:
        """What the monitor has seen, `Monitor.summary`."""
        with self._lock:
            return self._monitor.summary()

    def save(self) -> None:
        """Write the state, begin a new journal, and remove the older files; nothing if no image came since."""
        with self._lock:
            count = self._monitor.images
            if count == self._saved:
                return
            self._monitor.save(self._state_of(count))
            os.close(self._journal)
            self._journal = _opened(self._journal_of(count))
            self._saved = count
            for number, path in self._states():
                if number < count:
                    path.unlink(missing_ok=True)
                    self._journal_of(number).unlink(missing_ok=True)
            self._journal_of(0).unlink(missing_ok=True)

    def close(self) -> None:
        """Save, and let others use the folder."""
        if self._own.closed:
            return
        self.save()
        os.close(self._journal)
        self._own.close()

    def _write(self, lines: bytes) -> None:
        """A full disk stops the journal, not the service: the next state that is saved has what the journal lacks."""
        size = os.fstat(self._journal).st_size
        try:
            written = os.write(self._journal, lines)
            reason = f"{written} of {len(lines)} bytes were written"
        except OSError as error:
            written, reason = 0, str(error)
        if written < len(lines):
            os.ftruncate(self._journal, size)  # no half line before those that follow
            self._saved = -1
            LOG.error("the journal cannot be written", extra={"fields": {"reason": reason}})

    def _take(self, score: float | None, prediction: int | None, name: str | None) -> list[Any]:
        return self._monitor.update(math.inf if score is None else score, prediction, name)

    def _restored(self) -> tuple[Monitor, int] | None:
        """The last state that can be read, and its number of images."""
        for number, path in sorted(self._states(), reverse=True):
            try:
                return Monitor.load(path), number
            except (AdascaleError, OSError, KeyError, ValueError) as error:
                LOG.warning("a state cannot be read", extra={"fields": {"file": str(path), "reason": str(error)}})
        return None

    def _replay(self, path: Path) -> None:
        """Take in what a journal says. A line that was being written when the process ended is cut off."""
        whole = 0
        for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else []:
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("a line without an end")
                self._take(*json.loads(line))
            except (ValueError, TypeError):
                os.truncate(path, whole)
                return
            whole += len(line)

    def _states(self) -> list[tuple[int, Path]]:
        paths = self._folder.glob("monitor-*.safetensors")
        return [(int(path.stem.partition("-")[2]), path) for path in paths]

    def _state_of(self, count: int) -> Path:
        return self._folder / f"monitor-{count}.safetensors"

    def _journal_of(self, count: int) -> Path:
        return self._folder / f"journal-{count}.jsonl"


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
