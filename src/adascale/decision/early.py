"""Decisions for little more than a forward pass: the perturbed pass is made only if it can change the answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from adascale.core.answers import Decision
from adascale.core.types import Outputs
from adascale.detectors import Detector
from adascale.extraction.extract import extract_batch, extract_views
from adascale.extraction.given import Given
from adascale.network.classifier import Classifier

# Bounds and scores are rounded differently; this margin is far above the difference and far below any that matters.
_MARGIN = 1e-9
_MOST_WAITING = 16


def decisions(
    classifier: Classifier, method: Detector, threshold: float, batches: Iterable[Tensor], batch_size: int = 32
) -> Iterator[Decision]:
    """One `Decision` for each batch, in order: exactly ``score > threshold``.

    The clean pass gives bounds of the score over all percentiles that the perturbed pass could lead to (see
    `Detector.bounds`). If both lie on one side of the threshold, the image is decided. The others are gathered over at
    most 16 batches, until there are ``batch_size`` of them, and go through the full computation together.

    A network rounds differently in batches of another size. If rounding alone moves an image over the threshold, or
    its ``Q'`` over a step of the eCDF of the ID sample, the decision may differ, as with any other batch size.
    """
    waiting: deque[_Batch] = deque()
    for images in batches:
        waiting.append(_Batch(classifier, method, threshold, images))
        if sum(len(batch.open) for batch in waiting) >= batch_size or len(waiting) >= _MOST_WAITING:
            _settle(classifier, method, threshold, waiting)
        while waiting and not len(waiting[0].open):
            yield waiting.popleft().decision()
    _settle(classifier, method, threshold, waiting)
    yield from (batch.decision() for batch in waiting)


def named_decisions(
    classifier: Classifier, method: Detector, threshold: float, batches: Iterable[Given], batch_size: int
) -> Iterator[Decision]:
    """The same for batches that a user gave, each decision with the names of its images."""
    names = deque[list[str]]()

    def inputs() -> Iterator[Tensor]:
        for given in batches:
            names.append(given.names)
            yield given.images

    for decision in decisions(classifier, method, threshold, inputs(), batch_size):
        yield replace(decision, names=names.popleft())


class _Batch:
    """A batch after its clean pass: the decisions so far, and the images that are still undecided."""

    def __init__(self, classifier: Classifier, method: Detector, threshold: float, images: Tensor) -> None:
        outputs = extract_batch(classifier, images, method.taps)
        bounds = method.bounds(outputs)
        if bounds is None:
            low, high = torch.full((2, len(images)), torch.nan, dtype=torch.float64)
        else:
            low, high = bounds
        margin = _MARGIN * (1 + abs(threshold))
        self.is_ood = low > threshold + margin
        self.early = self.is_ood | (high <= threshold - margin)
        self.logits = outputs.logits
        self.open = (~self.early).nonzero().squeeze(1)
        self.images, self.outputs = images[self.open.to(images.device)], outputs[self.open]

    def decision(self) -> Decision:
        return Decision(self.is_ood, self.early, self.logits, self.logits.argmax(1))


def _settle(classifier: Classifier, method: Detector, threshold: float, waiting: Iterable[_Batch]) -> None:
    """Decide all undecided images by the full computation, those of one size together."""
    shapes = dict.fromkeys(batch.images.shape[1:] for batch in waiting if len(batch.open))
    for shape in shapes:
        group = [batch for batch in waiting if len(batch.open) and batch.images.shape[1:] == shape]
        images = torch.cat([batch.images for batch in group])
        if any(view.needs_gradient for view in method.views):
            # The pass for the gradient gives the clean outputs too, by the engine that gives the perturbed ones.
            full = extract_batch(classifier, images, method.wants)
        else:
            outputs = Outputs.cat([batch.outputs for batch in group])
            full = replace(outputs, views=extract_views(classifier, images, method.views))
        flagged = (method.score(full) > threshold).split([len(batch.open) for batch in group])  # type: ignore[no-untyped-call]
        for batch, answer in zip(group, flagged, strict=True):
            batch.is_ood[batch.open] = answer
            batch.open = batch.open[:0]
            batch.images = batch.images[:0]
