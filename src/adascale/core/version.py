"""The version, alone in a file so that every module may import it."""

__version__ = "0.2.0"
