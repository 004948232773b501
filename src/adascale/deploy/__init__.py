"""Detectors outside of Python: exported files, and what runs them."""
