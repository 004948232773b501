"""How well scores separate ID from OOD: the public names of `adascale.maths.metrics`."""

from adascale.maths.metrics import (
    Difference,
    Metrics,
    aupr,
    auroc,
    bootstrap,
    bootstrap_mean,
    evaluate,
    fpr_at_tpr,
    paired_bootstrap,
)

__all__ = [
    "Difference",
    "Metrics",
    "aupr",
    "auroc",
    "bootstrap",
    "bootstrap_mean",
    "evaluate",
    "fpr_at_tpr",
    "paired_bootstrap",
]
