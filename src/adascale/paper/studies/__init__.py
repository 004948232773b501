"""Every table and figure of the AdaSCALE paper as a study. ``ALL`` is the registry, in the order of the report."""

from __future__ import annotations

from adascale.core.errors import InputError
from adascale.paper.studies.ablations import STUDIES as ABLATIONS
from adascale.paper.studies.headline import STUDIES as HEADLINE
from adascale.paper.studies.inside import STUDIES as INSIDE
from adascale.paper.studies.joint import STUDIES as JOINT
from adascale.paper.studies.latency import STUDIES as LATENCY
from adascale.paper.studies.robustness import STUDIES as ROBUSTNESS
from adascale.paper.studies.samples import STUDIES as SAMPLES
from adascale.paper.studies.sensitivity import STUDIES as SENSITIVITY
from adascale.paper.studies.setting import Study

ALL: tuple[Study, ...] = (*HEADLINE, *SAMPLES, *ABLATIONS, *SENSITIVITY, *JOINT, *LATENCY, *ROBUSTNESS, *INSIDE)


def get(name: str) -> Study:
    """The study of this name."""
    for study in ALL:
        if study.name == name:
            return study
    raise InputError(f"There is no study {name!r}; choose one of {', '.join(study.name for study in ALL)}, or all.")
