"""The members of `combined`, fitted."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.shards import Shards
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.learning import readable
from adascale.maths.evidence import Evidence


class Voice(NamedTuple):
    """A fitted member, what its scores are worth, and how much it counts."""

    method: Detector
    evidence: Evidence
    weight: Tensor

    def of(self, scores: Tensor) -> Tensor:
        """What these scores of the member add."""
        return self.weight * self.evidence(scores)


def taught(member: Detector, known: Outputs, head: Head, train: Outputs | Shards | None) -> Detector | None:
    """The member, if it can be fitted without learning from the ID images that are to be ranked; else None."""
    if member.fits_on == "nothing":
        return replace(member).fit(known, head)
    if train is not None:
        with suppress(InputError):  # too few training images, or none with labels: the ID images may do
            return replace(member.sized(len(train), head)).fit(readable(member, train), head)
    return None
