"""Every table and figure of the AdaSCALE paper as a study. ``ALL`` is the registry, in the order of the report."""

from __future__ import annotations

from adascale.errors import InputError
from adascale.studies.ablations import STUDIES as ABLATIONS
from adascale.studies.headline import STUDIES as HEADLINE
from adascale.studies.inside import STUDIES as INSIDE
from adascale.studies.joint import STUDIES as JOINT
from adascale.studies.latency import STUDIES as LATENCY
from adascale.studies.robustness import STUDIES as ROBUSTNESS
from adascale.studies.samples import STUDIES as SAMPLES
from adascale.studies.sensitivity import STUDIES as SENSITIVITY
from adascale.studies.setting import Study

ALL: tuple[Study, ...] = (*HEADLINE, *SAMPLES, *ABLATIONS, *SENSITIVITY, *JOINT, *LATENCY, *ROBUSTNESS, *INSIDE)


def get(name: str) -> Study:
    """The study of this name."""
    for study in ALL:
        if study.name == name:
            return study
    raise InputError(f"There is no study {name!r}; choose one of {', '.join(study.name for study in ALL)}, or all.")
