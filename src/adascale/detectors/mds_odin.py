"""MDS-ODIN: Mahalanobis distance of an image moved towards its nearest class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from adascale.core.types import Centres, Outputs, View
from adascale.detectors.base import Detector
from adascale.detectors.mds import MDS


@dataclass
class MDSODIN(MDS):
    """Lee et al., "A simple unified framework for detecting out-of-distribution samples ...", NeurIPS 2018, with their
    input preprocessing, on the features before the last layer.

    ``x' = x - eta sign(d M_c(x) / d x) / std`` with ``sign(0) = 0``, ``M_c`` half the Mahalanobis distance of `MDS` to
    the class ``c`` whose mean is nearest to the features of ``x``; ``S`` is the score of `MDS` for the features of
    ``x'``. ``std`` is that of the input's normalisation; left empty, `OODDetector` takes it from its preprocessing, and
    without one the step is ``eta`` in normalised units.

    The step depends on what was learned: the method has no view before it is fitted, and images that are to be scored
    are perturbed after that. So its outputs cannot all be extracted beforehand, and it cannot be tuned, or be a member
    of `combined`. The authors choose ``eta`` by OOD images; here it is a parameter.
    """

    name = "mds_odin"
    summary = "Mahalanobis distance of an image moved towards its nearest class"
    passes = "2 forward, 1 backward"
    learns_view = True

    eta: float = 0.002
    std: tuple[float, ...] = ()

    def for_input(self, std: tuple[float, ...]) -> Detector:
        return self if self.std else replace(self, std=tuple(std))

    @cached_property
    def _view(self) -> View:
        """The perturbation, from what was learned; it is hashed once."""
        centres = Centres(self.mean_, self.root_, self.centres_)
        return View("all", step=-self.eta, std=self.std, towards=centres)

    @property
    def views(self) -> tuple[View, ...]:
        return (self._view,) if self.is_fitted else ()

    @property
    def untraceable(self) -> str:
        return f"it moves the image by the gradient of what was learned, which exported graphs lack; use {self.nearest}"

    def _score(self, outputs: Outputs) -> Tensor:
        return self._distance(outputs.views[self._view])

    def _forget(self) -> None:
        super()._forget()
        vars(self).pop("_view", None)
