"""What a benchmark finds, as plain data: the contract between the benchmark, its tables and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from PIL import Image
from torch import Tensor

from adascale.bench.columns import MEANS, Kind, Spectrum
from adascale.maths.conformal import Calibration
from adascale.maths.metrics import Difference


@dataclass(frozen=True)
class Row:
    """One method on one network: ID against one OOD set, or the mean over all sets of a kind.

    The figures are shares between 0 and 1. ``accuracy`` is that of the network on the ID side, None without labels.
    ``low`` and ``high`` bound the AUROC (95 % bootstrap interval), or are None in the full spectrum, for speed.
    """

    model: str
    method: str
    dataset: str
    kind: Kind
    spectrum: Spectrum
    fpr95: float
    auroc: float
    aupr_in: float
    aupr_out: float
    accuracy: float | None
    fpr95_id: float
    low: float | None
    high: float | None
    id_images: int
    ood_images: int

    @property
    def is_mean(self) -> bool:
        """Whether this is the mean over the sets of its kind."""
        return self.dataset == MEANS.get(self.kind)


@dataclass(frozen=True, eq=False)
class SetInfo:
    """A tested set: how many of its images were scored, and why the others were not."""

    kind: Kind
    images: int
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Profile:
    """AdaSCALE's own quantities on one set, which the paper's figures show.

    ranks: places in the order of the activations, strongest first, in percent of D (R,). shift_*: ``|a_eps - a|`` at
    these places, mean and standard deviation over the images (R,); perturbed_*: the same of ``a_eps``. q, q_prime,
    percentile, ratio: ``Q``, ``Q'``, ``p`` and ``r`` of each image (N,).
    """

    ranks: Tensor
    shift_mean: Tensor
    shift_std: Tensor
    perturbed_mean: Tensor
    perturbed_std: Tensor
    q: Tensor
    q_prime: Tensor
    percentile: Tensor
    ratio: Tensor


@dataclass(frozen=True, eq=False)
class Example:
    """An image for the gallery. label: the name of the predicted class, or its number."""

    dataset: str
    name: str
    score: float
    prediction: int
    picture: Image.Image
    label: str = ""


@dataclass(frozen=True, eq=False)
class ModelRun:
    """The results of one network. scores: method label -> set name -> OOD scores (N,), higher = more OOD.

    left_out: the methods that could not be fitted, and why. deployed: the line of the method that `OODDetector` has by
    default, as ``fit`` tunes it; "" if it was not run. as_fit: the first line of a method that ``fit`` tunes
    by default, "" if there is none. examples belong to the method ``shown``: the deployed one, else the one with
    profiles, else the first; "id" are the ID images that look most OOD, "ood" the OOD images that look most ID.
    profiles belong to ``profiled``, an AdaSCALE variant with the parameters ``profiled_with``: the deployed line or a
    member of it, else the first line that is one or has one; they are empty if none was run. twins: lines that are
    not there because tuning chose the parameters of another, and that other. unreadable: the sets that were left out
    because none of their images can be read, with the reason for each image. evidence: set name -> member ->
    what it adds to the score of each image (N,), by the first method that combines others; empty if there is none.
    calibration: the threshold that ``fit`` sets for the deployed line; None if that was not run.
    """

    model: str
    sets: Mapping[str, SetInfo]
    accuracy: float | None
    scores: Mapping[str, Mapping[str, Tensor]]
    left_out: Mapping[str, str]
    shown: str
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    examples: Mapping[Literal["id", "ood"], Sequence[Example]] = field(default_factory=dict)
    deployed: str = ""
    profiled: str = ""
    profiled_with: str = ""
    twins: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    evidence: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    as_fit: str = ""
    calibration: Calibration | None = None

    @property
    def kept(self) -> str:
        """The line that a table keeps however few lines it shows; "" if there is none."""
        return self.deployed or self.as_fit


@dataclass(frozen=True)
class Standing:
    """Which method leads, by the mean AUROC over the sets of a kind, and whether by more than chance.

    ahead: its lead over the ``second``; None if it is alone. deployed: the line that ``fit`` deploys by default, "" if
    it was not run. gap: the lead over the deployed line; None if that is the best one itself.
    """

    kind: Kind
    best: str
    auroc: float
    second: str = ""
    ahead: Difference | None = None
    deployed: str = ""
    gap: Difference | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """A benchmark: its networks, its rows, who leads on each network, and all that is needed to reproduce it."""

    suite: str
    models: Sequence[ModelRun]
    rows: Sequence[Row]
    reproduce: Mapping[str, Any]
    standings: Mapping[str, Standing] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from adascale.bench.page import run_html  # it imports this module

        return run_html(self)
