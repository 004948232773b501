"""Requests that are not served, each with a status and one line that says why."""

from __future__ import annotations

import math


class Refused(Exception):
    """The answer to a request that is not served. headers: further ones of the answer."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, " ".join(message.split()), headers or {}


def busy(what: str, seconds: float = 1.0) -> Refused:
    """Too much at a time: the same request may be sent again after so many seconds."""
    return Refused(503, f"{what}; try again later.", {"Retry-After": str(max(1, math.ceil(seconds)))})


def late(seconds: float) -> Refused:
    return Refused(504, f"The answer was not ready within {seconds:g} s; the images are given up.")


def slow() -> Refused:
    return Refused(408, "The request was not complete in time.", {"Connection": "close"})


def too_large(limit: int) -> Refused:
    return Refused(413, f"The body is too large; at most {limit} bytes are taken.", {"Connection": "close"})
