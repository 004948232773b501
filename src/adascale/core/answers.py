"""What a detector answers: `Verdict` and `Decision`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from adascale.core.displays import drawn
from adascale.core.errors import InputError


@dataclass(frozen=True, eq=False)
class Verdict:
    """The full answer for a batch of N images; every field has N rows.

    is_ood: ``score > threshold``, the same as ``p_value <= level`` (see `Calibration`); from `OODDetector.discoveries`,
    the discoveries of the batch. score: higher = more out-of-distribution. p_value: share of in-distribution images at
    least as unusual. logits: those of the network, unchanged. prediction: the class of the largest logit. evidence: for
    a method that combines others, what each of them adds to the score, by its name. class_names: the name of every
    class, if they are known; it has a place for each class, not for each image. names: those of the
    images; empty if they came as tensors.

    For example:

        >>> verdict = detector(images)
        >>> len(verdict), verdict.is_ood.shape, verdict.p_value.shape
        (3, torch.Size([3]), torch.Size([3]))
        >>> suspicious = images[verdict.is_ood]
    """

    is_ood: Tensor
    score: Tensor
    p_value: Tensor
    logits: Tensor
    prediction: Tensor
    evidence: Mapping[str, Tensor] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)

    @property
    def label(self) -> list[str]:
        """The names of the predicted classes; their numbers where names are not known."""
        return labels(self.prediction, self.class_names)

    def __len__(self) -> int:
        return len(self.score)

    def show(self, images: Any) -> Any:
        """The images with their verdicts, for a notebook. images: those that were judged, in any form a detector takes.

        Tensors are shown from their darkest value to their brightest, because nobody says how they were normalised.
        """
        return drawn("verdict_shown", self, images)

    def _repr_html_(self) -> str:
        return str(drawn("verdict_html", self))

    def __repr__(self) -> str:
        return f"Verdict({int(self.is_ood.sum())} of {len(self)} out-of-distribution)"


@dataclass(frozen=True, eq=False)
class Decision:
    """Yes or no for a batch of N images; every field has N rows.

    is_ood: the same as in the full `Verdict`. early: whether the clean pass alone settled it. logits: those of the
    network. prediction: the class of the largest logit. class_names and names: as in `Verdict`.

    For example:

        >>> decision = detector.decide(images)
        >>> bool((decision.is_ood == detector(images).is_ood).all())
        True
    """

    is_ood: Tensor
    early: Tensor
    logits: Tensor
    prediction: Tensor
    class_names: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)

    @property
    def label(self) -> list[str]:
        """The names of the predicted classes; their numbers where names are not known."""
        return labels(self.prediction, self.class_names)

    def __len__(self) -> int:
        return len(self.is_ood)

    def __repr__(self) -> str:
        ood, early = int(self.is_ood.sum()), int(self.early.sum())
        return f"Decision({ood} of {len(self)} out-of-distribution, {early} settled early)"


Answer = TypeVar("Answer", Verdict, Decision)


def labels(prediction: Tensor, class_names: Sequence[str]) -> list[str]:
    """A name for each predicted class: its own, or its number if the names end before it."""
    return [label_of(i, class_names) for i in prediction.tolist()]


def label_of(prediction: int, class_names: Sequence[str]) -> str:
    """The name of one predicted class, or its number."""
    return class_names[prediction] if prediction < len(class_names) else str(prediction)


def joined(parts: Sequence[Answer]) -> Answer:
    """One answer for all the images of these answers, in order."""
    if not parts:
        raise InputError("There are no images to judge; give images, a tensor (N, C, H, W) or batches.")
    return type(parts[0])(*(_joined([getattr(part, one.name) for part in parts]) for one in fields(parts[0])))


def _joined(values: Sequence[Any]) -> Any:
    """Rows are put together; what holds for all images is the same in every part."""
    if isinstance(values[0], Tensor):
        return torch.cat(list(values))
    if isinstance(values[0], Mapping):
        return {name: torch.cat([value[name] for value in values]) for name in values[0]}
    if isinstance(values[0], list):
        return [entry for value in values for entry in value]
    return values[0]
