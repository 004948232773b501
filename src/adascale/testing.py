"""The contract of a method as public checks: run `check_detector` on a class of your own."""

from adascale.detectors.checks import CHECKS, check_detector, example_outputs

__all__ = ["CHECKS", "check_detector", "example_outputs"]
