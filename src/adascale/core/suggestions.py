"""What a misspelt name was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: ``; did you mean 'scale'?``, or a full stop if no name is close."""
    lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), lower, 1)
    return f"; did you mean {lower[close[0]]!r}?" if close else "."
