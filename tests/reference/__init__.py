"""An independent transcription of every method and metric: NumPy, float64, one sample at a time.

Each method is a function ``method(head, known, **parameters)`` that learns from the in-distribution samples ``known``
and returns the score of one sample, higher = more out-of-distribution. Nothing here imports ``adascale``; the formulas
follow the papers, and the comparison in `published` follows the scores of the published reference implementations.
Speed does not matter; a reader should be able to check every line against the definition.
"""
