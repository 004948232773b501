"""How well scores separate ID from OOD: the public names of `adascale.maths.metrics`."""

from adascale.maths.metrics import Metrics, aupr, auroc, bootstrap, evaluate, fpr_at_tpr

__all__ = ["Metrics", "aupr", "auroc", "bootstrap", "evaluate", "fpr_at_tpr"]
