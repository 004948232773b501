"""What sets the threshold: its limits, and further calibration images for a fitted detector."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from adascale.core.errors import AdascaleWarning, InputError
from adascale.decision.answering import Answering
from adascale.decision.audit import AuditEntry, Change, entry, in_force
from adascale.decision.fitting import checked
from adascale.decision.provenance import source_in_words
from adascale.detectors import Detector
from adascale.extraction.extract import extract_batch
from adascale.extraction.given import Given
from adascale.maths.binomial import at_most
from adascale.maths.conformal import Calibration
from adascale.maths.split import total_needed
from adascale.network.classifier import Classifier

if TYPE_CHECKING:
    from typing_extensions import Self

_UNLIKELY = 1e-3


class Recalibrating(Answering):
    """The part of `OODDetector` that looks after its calibration images."""

    audit: tuple[AuditEntry, ...]
    calibration_classes: Tensor | None

    def recalibrate(self, images: Any, *, replace: bool = False, source: str | None = None) -> Self:
        """Add images that a person confirmed as in-distribution to those that set the threshold. Nothing is fitted.

        The promise then holds for fresh images that are exchangeable with all calibration images together. The images
        must be a random sample of the in-distribution traffic, flagged or not: images that were confirmed *because*
        they were flagged would raise the threshold too far, and a warning says so where they stand out.
        ``replace``: set the threshold by these images alone, for traffic that has changed for good. Images that cannot
        be read are skipped, and a warning names them. ``audit`` says which images set the threshold; ``source`` is
        what it says about where these come from.
        """
        before = self._calibrated()
        kept = () if replace else in_force(self.audit)
        found = confirmed(self._batches(images, skip=True), self.classifier, self.method, kept)
        if (reason := selected(before, found.scores)) and not replace:
            warnings.warn(reason, AdascaleWarning, stacklevel=2)
        scores = found.scores if replace else torch.cat([before.scores, found.scores])
        self.calibration = checked(Calibration(scores, before.alpha, before.confidence))
        if replace:
            self.calibration_classes = found.classes
        elif self.calibration_classes is not None:
            self.calibration_classes = torch.cat([self.calibration_classes, found.classes])
        change: Change = "replaced" if replace else "added"
        self.audit += (entry(change, len(found.scores), source or source_in_words(images), found.names),)
        self._warn_of_limits(0.0)
        return self

    def _warn_of_limits(self, share: float) -> None:
        calibration = self._calibrated()
        if calibration.promised > calibration.alpha:
            total = total_needed(calibration.alpha, share, calibration.confidence)
            hint = f" Give fit at least {total} images for that." if share else ""
            warnings.warn(calibration.guarantee() + hint, AdascaleWarning, stacklevel=3)
        if broken := int(calibration.scores.isinf().sum()):
            warnings.warn(
                f"{broken} calibration images give NaN or infinite activations; they count as out-of-distribution.",
                AdascaleWarning,
                stacklevel=3,
            )


class Confirmed(NamedTuple):
    """Images that a person confirmed as in-distribution: scores, predicted classes, names (empty for tensors)."""

    scores: Tensor
    classes: Tensor
    names: list[str]


def confirmed(
    batches: Iterable[Given], classifier: Classifier, method: Detector, audit: Sequence[AuditEntry]
) -> Confirmed:
    """The images of these batches. Those whose names are in the log already are left out, with a warning."""
    known = {name for one in audit for name in one.names}
    scores, classes, names, twice = list[Tensor](), list[Tensor](), list[str](), list[str]()
    for given in batches:
        fresh = [i for i in range(len(given.images)) if not (given.names and given.names[i] in known)]
        twice += [name for name in given.names if name in known]
        known |= set(given.names)
        if fresh:
            outputs = extract_batch(classifier, given.images[fresh], method.wants)
            scores.append(method.score(outputs).cpu())
            classes.append(outputs.logits.argmax(1).cpu())
            names += [given.names[i] for i in fresh] if given.names else []
    if twice:
        warnings.warn(
            f"{len(twice)} images are calibration images already ({twice[0]}); they do not count again.",
            AdascaleWarning,
            stacklevel=3,
        )
    if not scores:
        raise InputError("recalibrate got no new images; give images that a person confirmed as in-distribution.")
    found = torch.cat(scores).double()
    whole = len(names) == len(found)  # some batches may have come without names
    return Confirmed(found, torch.cat(classes), names if whole else [])


def selected(before: Calibration, added: Tensor) -> str | None:
    """A warning, if so many added images lie above the threshold that they can hardly be a random sample."""
    above, m = int(before.is_ood(added).sum()), len(added)
    most = before.rate_range[1]  # what a detector like this one flags at the most, with 95 % confidence
    if 1 - at_most(above - 1, m, most) >= _UNLIKELY:
        return None
    return (
        f"{above} of the {m} images would be flagged by the threshold before, where {100 * before.level:.3g} % are "
        "expected. If they were confirmed because they were flagged, the new threshold is too high and promises "
        "nothing: give a random sample of the traffic, flagged or not. If they are such a sample, the traffic has "
        "changed: replace=True calibrates on them alone."
    )
