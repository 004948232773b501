"""Benchmarks: suites, runs, figures and comparisons."""
