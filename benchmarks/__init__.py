"""Measurements. ``python -m benchmarks.detectors``: time and memory; ``python -m benchmarks.methods``: accuracy."""
