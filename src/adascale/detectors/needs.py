"""What a method needs of outputs, checked: one sentence about what is missing, and which samples are usable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Need, Outputs, Tap
from adascale.detectors.rows import finite_rows, rowwise

NOT_FINITE = "Every reference sample has NaN or infinite activations; check weights and preprocessing."


@dataclass(frozen=True)
class Needs:
    """What the samples that a method learns from must have. shape: (classes, features) of the head."""

    name: str
    fits_on: str
    wants: tuple[Need, ...]
    features: bool
    shape: tuple[int, ...]

    def finite(self, reference: Outputs) -> Tensor:
        """Which samples are usable, after the outputs were checked."""
        if len(reference) and self.fits_on in ("val+labels", "train+labels"):
            _check_labels(self.name, self.fits_on, reference)
        check_shapes(self.name, self.wants, reference, self.shape)
        return rowwise(reference, lambda chunk: finite_rows(chunk, self.wants, self.features), torch.bool)

    def usable(self, reference: Outputs) -> Outputs:
        """The usable samples: a copy only where some are left out."""
        finite = self.finite(reference)
        return reference if finite.all() else reference[finite]

    def none_given(self) -> InputError:
        return InputError(f"{self.name} learns from in-distribution samples and got none; pass them to fit.")


def check_shapes(name: str, wants: Sequence[Need], outputs: Outputs, shape: tuple[int, ...]) -> None:
    """Refuse outputs without these views and taps, or of another head."""
    for view in wants:
        if isinstance(view, Tap):
            if view not in outputs.taps:
                has = ", ".join(map(str, outputs.taps)) or "none"
                raise InputError(f"{name} needs the inner layers {view}; these outputs have {has}. Extract them too.")
        elif view not in outputs.views:
            has = ", ".join(map(str, outputs.views)) or "none"
            raise InputError(f"{name} needs the view {view}; these outputs have {has}. Extract it as well.")
    given = (outputs.logits.shape[1], outputs.features.shape[1])
    if given != shape:
        raise InputError(f"Outputs have (classes, features) = {given}; the head has {shape}.")


def _check_labels(name: str, fits_on: str, reference: Outputs) -> None:
    labels, classes = reference.labels, reference.logits.shape[1]
    if labels is None:
        whose = "the training labels" if fits_on == "train+labels" else "the labels of the ID images"
        raise InputError(f"{name} needs {whose}; give batches as (images, labels).")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise InputError(
            f"Labels run from {int(labels.min())} to {int(labels.max())}; "
            f"the network has {classes} classes, so they must be 0 to {classes - 1}."
        )
