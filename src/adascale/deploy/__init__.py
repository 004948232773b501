"""Detectors as files for other engines: one graph with the network, the method and the threshold."""
