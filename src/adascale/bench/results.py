"""What a benchmark finds, as plain data: the contract between the benchmark, its tables and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from PIL import Image
from torch import Tensor

from adascale.report.document import Column

Kind = Literal["id", "shifted", "near", "far"]
Spectrum = Literal["ood", "full"]  # full: covariate-shifted ID joins the ID side
MEANS = {"near": "nearood", "far": "farood"}  # OpenOOD's names of the means over the near and the far sets
KINDS = {"near": "Near-OOD", "far": "Far-OOD", "shifted": "Shifted ID", "id": "ID"}  # as people read them


def _metric(key: str, title: str, good: Literal["low", "high"], hint: str) -> Column:
    return Column(key, title, good=good, hint=f"{hint}; {good}er is better")


METRICS = (  # the figures of a row, as columns of a table
    _metric("fpr95", "FPR@95", "low", "share of ID flagged where 95 % of the OOD is caught"),
    _metric("auroc", "AUROC", "high", "chance that an OOD image scores above an ID image"),
    _metric("fpr95_id", "FPR@95-ID", "low", "share of OOD accepted where 95 % of the ID is kept"),
    _metric("aupr_in", "AUPR-in", "high", "area under precision and recall, ID as positive"),
    _metric("aupr_out", "AUPR-out", "high", "area under precision and recall, OOD as positive"),
)
USUAL = METRICS[:2]
BOTH = METRICS[:3]  # both meanings of FPR@95


@dataclass(frozen=True)
class Row:
    """One method on one network: ID against one OOD set, or the mean over all sets of a kind.

    The figures are shares between 0 and 1. ``accuracy`` is that of the network on the ID side, None without labels.
    ``low`` and ``high`` bound the AUROC (95 % bootstrap interval); they are None for means.
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
    """An image for the gallery."""

    dataset: str
    name: str
    score: float
    prediction: int
    picture: Image.Image


@dataclass(frozen=True, eq=False)
class ModelRun:
    """The results of one network. scores: method label -> set name -> OOD scores (N,), higher = more OOD.

    left_out: the methods that could not be fitted, and why. profiles and examples belong to the method ``shown`` (an
    AdaSCALE variant if one was run, otherwise the first method); profiles are empty if it is not AdaSCALE. examples:
    "id" are the ID images that look most OOD, "ood" the OOD images that look most ID. evidence: set name -> member ->
    what it adds to the score of each image (N,), by the first method that combines others; empty if there is none.
    """

    model: str
    sets: Mapping[str, SetInfo]
    accuracy: float | None
    scores: Mapping[str, Mapping[str, Tensor]]
    left_out: Mapping[str, str]
    shown: str
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    examples: Mapping[Literal["id", "ood"], Sequence[Example]] = field(default_factory=dict)
    evidence: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Run:
    """A benchmark: its networks, its rows, and all that is needed to reproduce it."""

    suite: str
    models: Sequence[ModelRun]
    rows: Sequence[Row]
    reproduce: Mapping[str, Any]
