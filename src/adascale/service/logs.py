"""Logs as lines of JSON on stderr, with the id of the request. Nothing of an image is ever logged."""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from typing import Any

LOG = logging.getLogger("adascale.service")
_LEVELS = {
    "adascale.service": logging.INFO,
    "asyncio": logging.WARNING,
    "python_multipart": logging.ERROR,  # what it warns of is told to the client
    "uvicorn": logging.ERROR,  # likewise
}


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Stderr(logging.Handler):
    """Writes to what is stderr at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """One line; fields: what it says besides time, level and event."""
    LOG.log(level, event, extra={"fields": fields})


def start_logs() -> None:
    """Send our lines, those of the libraries and warnings to stderr as JSON."""
    handler = _Stderr()
    handler.setFormatter(_Lines())
    for name, level in _LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    warnings.showwarning = lambda message, *_, **__: log("warning", logging.WARNING, message=str(message))
