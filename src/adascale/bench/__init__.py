"""Benchmarks: suites, runs, figures and comparisons."""

from pathlib import Path

from adascale.core.errors import InputError
from adascale.core.suggestions import meant

SUITES: tuple[str, ...] = ("digits", "cifar10", "cifar100", "imagenet200", "imagenet", "imagenet-paper")


def check_suite(name: str) -> str:
    """The name of a suite of the package, or of a file. This needs no other module, so a typo is told at once."""
    if name not in SUITES and not Path(name).is_file():
        hint = meant(name, SUITES)
        raise InputError(f"There is no suite {name}{hint} Give one of {', '.join(SUITES)}, or a TOML file.")
    return name
