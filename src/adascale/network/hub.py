"""Networks of the Hugging Face hub: whether it can be asked at all, found out once and not by many retries."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies

from adascale.core.extras import optional

_SECONDS = 5.0


def offline() -> bool:
    """Whether only the files on this machine can be used: because the user says so, or the hub does not answer."""
    constants = optional("huggingface_hub.constants", "huggingface")
    return bool(constants.HF_HUB_OFFLINE) or not _answers(str(constants.ENDPOINT))


def _answers(endpoint: str) -> bool:
    """Whether a connection can be made. Behind a proxy that cannot be tried directly; there it is assumed."""
    place = urlsplit(endpoint)
    if getproxies() or place.hostname is None:
        return True
    try:
        with socket.create_connection(
            (place.hostname, place.port or (80 if place.scheme == "http" else 443)), _SECONDS
        ):
            return True
    except OSError:
        return False
