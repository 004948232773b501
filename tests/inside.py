"""The methods that look inside the network, or change it: they need more than stored features."""

from __future__ import annotations

from adascale import detectors

INSIDE = {cls.name for cls in detectors.ALL if cls().looks_inside}
