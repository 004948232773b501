"""What a detector answers: `Verdict` and `Decision`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from torch import Tensor

from adascale.core.errors import InputError


@dataclass(frozen=True, eq=False)
class Verdict:
    """The full answer for a batch of N images; every field has N rows.

    is_ood: ``score > threshold``, the same as ``p_value <= level`` (`Calibration.level`: alpha, or the lowest level
    that can be guaranteed). score: higher = more out-of-distribution. p_value: share of in-distribution images at least
    as unusual. logits: those of the network, unchanged. prediction: the class of the largest logit.
    """

    is_ood: Tensor
    score: Tensor
    p_value: Tensor
    logits: Tensor
    prediction: Tensor

    def __len__(self) -> int:
        return len(self.score)

    def __repr__(self) -> str:
        return f"Verdict({int(self.is_ood.sum())} of {len(self)} out-of-distribution)"


@dataclass(frozen=True, eq=False)
class Decision:
    """Yes or no for a batch of N images; every field has N rows.

    is_ood: the same as in the full `Verdict`. early: whether the clean pass alone settled it. logits: those of the
    network. prediction: the class of the largest logit.
    """

    is_ood: Tensor
    early: Tensor
    logits: Tensor
    prediction: Tensor

    def __len__(self) -> int:
        return len(self.is_ood)

    def __repr__(self) -> str:
        ood, early = int(self.is_ood.sum()), int(self.early.sum())
        return f"Decision({ood} of {len(self)} out-of-distribution, {early} settled early)"


Answer = TypeVar("Answer", Verdict, Decision)


def joined(parts: Sequence[Answer]) -> Answer:
    """One answer for all the images of these answers, in order."""
    if not parts:
        raise InputError("There are no images to judge; give a tensor (N, C, H, W) or batches.")
    columns = (torch.cat([getattr(part, field.name) for part in parts]) for field in fields(parts[0]))
    return type(parts[0])(*columns)
