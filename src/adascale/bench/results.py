"""What a benchmark finds, as plain data: the contract between the benchmark, its tables and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from PIL import Image
from torch import Tensor

Kind = Literal["id", "shifted", "near", "far"]
Spectrum = Literal["ood", "full"]  # full: covariate-shifted ID joins the ID side
MEANS = {"near": "nearood", "far": "farood"}  # OpenOOD's names of the means over the near and the far sets


@dataclass(frozen=True)
class Row:
    """One line of the table: one method on one network, ID against one OOD set or the mean over a kind of them.

    Shares between 0 and 1. ``accuracy`` is that of the network on the ID side, None without labels. ``low`` and
    ``high`` bound the AUROC (95 % bootstrap interval), None for means.
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


@dataclass(frozen=True, eq=False)
class SetInfo:
    """A tested set: how many of its images were scored, and why others were not."""

    kind: Kind
    images: int
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Profile:
    """AdaSCALE's own quantities on one set: what the paper's figures show.

    ranks: places in the order of the activations, strongest first, in percent of D (R,). shift_*: ``|a_eps - a|`` at
    these places, mean and deviation over the images (R,); perturbed_*: the same of ``a_eps``. q, q_prime, percentile,
    ratio: ``Q``, ``Q'``, ``p`` and ``r`` of each image (N,).
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
    """All about one network. scores: method label -> set name -> OOD scores (N,), higher = more OOD.

    left_out: methods that could not be fitted, and why. profiles and examples belong to the method ``shown`` (an
    AdaSCALE variant where one was run, else the first); profiles are empty where it is none. examples: "id" = the most
    OOD-looking ID images, "ood" = the most ID-looking OOD images.
    """

    model: str
    sets: Mapping[str, SetInfo]
    accuracy: float | None
    scores: Mapping[str, Mapping[str, Tensor]]
    left_out: Mapping[str, str]
    shown: str
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    examples: Mapping[Literal["id", "ood"], Sequence[Example]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Run:
    """A benchmark: its networks, its rows, and all that is needed to do it again."""

    suite: str
    models: Sequence[ModelRun]
    rows: Sequence[Row]
    reproduce: Mapping[str, Any]
