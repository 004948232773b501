"""Tells when the traffic of a detector has changed, with a guarantee about false alarms."""

from adascale.monitoring.monitor import Monitor
from adascale.monitoring.page import report_page, write_report

__all__ = ["Monitor", "report_page", "write_report"]
