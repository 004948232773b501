"""Every table and figure of the AdaSCALE paper as a study. ``ALL`` has them in the order of the report."""

from __future__ import annotations

from adascale.paper.published import check_study
from adascale.paper.studies import (
    activations_seen,
    comparisons,
    corruption,
    fitted,
    joint,
    latency,
    parameters,
    retrained,
)
from adascale.paper.studies.study import TEXTS, Study

_MODULES = (comparisons, fitted, parameters, joint, latency, corruption, retrained, activations_seen)
_STUDIES: dict[str, Study] = {study.name: study for module in _MODULES for study in module.STUDIES}
ALL: tuple[Study, ...] = tuple(_STUDIES[name] for name in TEXTS)


def get(name: str) -> Study:
    """The study of this name."""
    return _STUDIES[check_study(name)]
