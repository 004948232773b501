"""The version, alone in a file so that every module may import it."""

__version__ = "0.1.0"
