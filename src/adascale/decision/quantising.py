"""A detector on the int8 copy of its network: fitted and calibrated on what that network computes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Outputs
from adascale.decision.audit import entry
from adascale.decision.detector_file import record_of
from adascale.decision.fitting import Plan, calibrated
from adascale.decision.provenance import fitting_record
from adascale.decision.tuning import FEWEST_IMAGES, chosen_count
from adascale.export.graph import Fitted
from adascale.export.int8 import quantise
from adascale.images.outliers import OUTLIERS
from adascale.maths.metrics import auroc
from adascale.maths.split import split

if TYPE_CHECKING:
    from adascale.decision.ood_detector import OODDetector

_RANGES = 0.2  # the share of the images that show the ranges of the activations, if the method learns from none


@dataclass(frozen=True)
class Loss:
    """What int8 costs. auroc, auroc_float: percent, the mean over the kinds of outliers. against: which these are.
    flagged: how many of ``held_out`` ID images, which nothing was fitted or calibrated on, are flagged.
    """

    auroc: float
    auroc_float: float
    against: str
    flagged: int
    held_out: int

    def __str__(self) -> str:
        return (
            f"int8 against {self.against}: AUROC {self.auroc:.2f} % (float {self.auroc_float:.2f} %); "
            f"{self.flagged} of {self.held_out} held-out ID images flagged"
        )


def quantised(
    detector: OODDetector,
    fitted: Fitted,
    images: Tensor,
    labels: Tensor | None = None,
    source: str = "images",
    unknown: Mapping[str, Tensor] | None = None,
) -> tuple[Fitted, Loss]:
    """The detector on the int8 copy of its network, with the same parameters, and what that costs.

    images: in-distribution inputs (N, C, H, W), at least 64. They are split as `OODDetector.fit` splits them: some show
    the ranges of the activations and fit the method, some set the threshold, and the loss is measured on the rest.
    unknown: OOD inputs by name to measure it with, by default outliers made from the last part.
    """
    n = len(images)
    if n < FEWEST_IMAGES:
        raise InputError(
            f"int8 got {n} images; give at least {FEWEST_IMAGES} in-distribution images, better some hundred."
        )
    method = replace(detector.method)
    plan = Plan(method, frozenset(method.parameters), False, detector.split_seed, detector.alpha)
    parts = split(n, detector.split_seed, plan.share() or _RANGES, chosen_count(n))
    network = quantise(fitted, images[parts.fitted])
    learned, held_out = (
        _outputs(network.outputs(images[rows]), labels, rows) for rows in (parts.fitted, parts.held_out)
    )
    method.fit(learned, fitted.method.head_)
    calibration = calibrated(method, held_out, detector.alpha, detector.confidence)
    again = replace(fitted, method=method, calibration=calibration, quantised=network)
    loss = measured_loss(fitted, again, images[parts.chosen], unknown)
    other = copy.copy(detector)
    other._method, other.calibration = method, calibration
    other.reference_images = 0 if method.fits_on == "nothing" else len(parts.fitted)
    other.fitted, other.audit = fitting_record(n, source), (entry("fit", len(parts.held_out), source),)
    record = record_of(other, calibration, detector.about)
    record["network"] = {**record["network"], "fingerprint": network.fingerprint, "precision": "int8"}
    record["int8"] = {"images": n, "ranges": len(parts.fitted), "float": fitted.record["network"], **asdict(loss)}
    return replace(again, record=record), loss


def measured_loss(before: Fitted, after: Fitted, known: Tensor, unknown: Mapping[str, Tensor] | None = None) -> Loss:
    """AUROC before and after, and false alarms after. known: ID inputs that neither was fitted or calibrated on.
    unknown: OOD inputs by name, by default outliers made from ``known``.
    """
    made = unknown is None
    sets = {name: make(known) for name, make in OUTLIERS.items()} if unknown is None else dict(unknown)
    own = [_scores(fitted, known) for fitted in (before, after)]
    found = [
        [auroc(mine, _scores(fitted, other)) for other in sets.values()]
        for fitted, mine in zip((before, after), own, strict=True)
    ]
    then, now = (100 * sum(values) / len(values) for values in found)
    against = f"{', '.join(sets)}" + (f" made from {len(known)} ID images" if made else "")
    return Loss(now, then, against, int(after.calibration.is_ood(own[1]).sum()), len(known))


def _scores(fitted: Fitted, images: Tensor) -> Tensor:
    # The largest finite number takes the place of +inf: AUROC depends on ranks alone.
    return fitted.method.score(fitted.outputs(images)).nan_to_num(posinf=torch.finfo(torch.float64).max)


def _outputs(outputs: Outputs, labels: Tensor | None, rows: Tensor) -> Outputs:
    return outputs if labels is None else replace(outputs, labels=labels[rows])
