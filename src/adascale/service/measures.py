"""What Prometheus reads at /metrics, in a registry of our own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


class Measures:
    """Counters, gauges and histograms of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests by endpoint and status.", "endpoint", "status")
        self.images = self._counter("images", "Images that were judged.", "detector")
        self.flagged = self._counter("flagged", "Images that were flagged as out-of-distribution.", "detector")
        self.errors = self._counter("errors", "Images without an answer.", "detector", "reason")
        self.latency = self._histogram("request_seconds", "From the first byte to the answer.", _SECONDS, "endpoint")
        self.batches = self._histogram("batch_images", "Images of one pass.", _BATCHES, "detector")
        self.passes = self._histogram("pass_seconds", "Duration of one pass.", _SECONDS, "detector")
        self.queue = self._gauge("queue_images", "Images that are taken on and not yet answered.", "detector")
        self.held = Gauge("adascale_held_bytes", "Bytes of the bodies under way.", registry=self.registry)
        self.evidence = self._gauge(
            "monitor_evidence", "Evidence of an alarm, relative to its limit.", "detector", "alarm", "kind"
        )
        self.alarm = self._gauge("monitor_alarm", "1 if the alarm was raised.", "detector", "alarm", "kind")

    def watch(self, detector: str, depth: Callable[[], float]) -> None:
        """Read the depth of a queue whenever the metrics are read."""
        self.queue.labels(detector).set_function(depth)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"adascale_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"adascale_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"adascale_{name}", text, labels, buckets=buckets, registry=self.registry)
