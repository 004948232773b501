"""Tells when the traffic of a detector has changed, with a guarantee about false alarms."""

from adascale.monitoring.monitor import Monitor

__all__ = ["Monitor"]
