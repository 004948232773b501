"""What people say about verdicts, appended to a log that says who set a threshold by what: one line of JSON each."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "feedback.jsonl"
_KEPT = ("id", "name", "prediction", "score", "p_value", "is_ood")


class Feedback:
    """The log of one detector; path None: nothing is written.

    A later label of a verdict replaces the earlier one in the counts, not in the log.
    """

    def __init__(self, path: Path | None, detector: str) -> None:
        self.path, self._detector, self._lock = path, detector, threading.Lock()
        self._labels: dict[str, str] = {}
        for line in path.read_text("utf8").splitlines() if path is not None and path.is_file() else []:
            self._read(line)

    def _read(self, line: str) -> None:
        try:
            entry = json.loads(line)
            self._labels[entry["id"]] = entry["label"]
        except (ValueError, KeyError, TypeError):  # the last line, if the machine stopped while it was written
            return

    def add(self, verdict: Mapping[str, Any], label: str) -> dict[str, int]:
        """Append a label, unless it is known already; how many verdicts have which label."""
        with self._lock:
            if self._labels.get(verdict["id"]) != label:
                kept = {name: verdict.get(name) for name in _KEPT}
                self._append({"time": time.time(), "detector": self._detector, **kept, "label": label})
                self._labels[verdict["id"]] = label
            return self.counts()

    def counts(self) -> dict[str, int]:
        return {"known": 0, "unknown": 0, **Counter(self._labels.values())}

    def _append(self, entry: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
