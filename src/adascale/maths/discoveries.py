"""Control of the false discovery rate over a batch: Benjamini and Hochberg's procedure on conformal p-values.

Y. Benjamini and Y. Hochberg, "Controlling the false discovery rate", JRSS B 1995. S. Bates, E. Candes, L. Lei,
Y. Romano and M. Sesia, "Testing for outliers with conformal p-values", Annals of Statistics 2023: p-values that share
their calibration images are positively dependent (PRDS), so the procedure keeps its level.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from adascale.maths.promise import check_fdr

_ROUNDING = 1 + 1e-12  # a p-value that equals its bound must not be lost by rounding


def largest_discovery(p_values: Tensor, fdr: float) -> float:
    """The largest p-value that is a discovery; 0 if none is.

    It is the largest ``p_(i)`` with ``p_(i) <= fdr i / N`` for the p-values ``p_(1) <= ... <= p_(N)`` of the batch.
    """
    check_fdr(fdr)
    ordered = p_values.double().sort().values
    bounds = fdr * torch.arange(1, len(ordered) + 1, dtype=torch.float64) / max(len(ordered), 1)
    kept = ordered[ordered.cpu() <= bounds * _ROUNDING]
    return float(kept[-1]) if len(kept) else 0.0


def discoveries(p_values: Tensor, fdr: float) -> Tensor:
    """Which p-values of a batch are discoveries (N,): at most the share ``fdr`` of them is false, on average.

    For example:

        >>> discoveries(torch.tensor([0.01, 0.02, 0.5, 0.9]), fdr=0.1).tolist()
        [True, True, False, False]
    """
    return p_values <= largest_discovery(p_values, fdr)


def limits(calibration_images: int, images: int, fdr: float) -> str | None:
    """What keeps a batch without discoveries from having any, if that is the number of calibration images.

    No p-value is below ``1 / (n + 1)``. So ``N / (fdr (n + 1))`` images have to share it before one is a discovery.
    """
    n = calibration_images
    least = math.ceil(images / (fdr * (n + 1)) / _ROUNDING)
    if least <= 1:
        return None
    if least > images:
        most = f"with {n} calibration images no p-value is below 1/{n + 1}, so there can be no discoveries"
    else:
        most = f"with {n} calibration images at least {least} of {images} images must score above all of them"
    return f"fdr={fdr:g}: {most}. Fit on more images" + ("." if least > images else ", or judge fewer at once.")
