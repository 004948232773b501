"""Measurements. ``python -m benchmarks``: ratios of time; the modules have commands of their own."""
