"""Equality up to rounding."""

from __future__ import annotations

from torch import Tensor


def alike(found: Tensor, expected: Tensor, slack: float) -> bool:
    """Whether two tensors of one shape differ by at most ``slack`` times the largest magnitude that is expected."""
    if found.shape != expected.shape:
        return False
    found, expected = found.detach().cpu().double(), expected.detach().cpu().double()
    most = slack * max(float(expected.abs().max()), 1e-6)
    return bool(((found - expected).abs() <= most).all())
