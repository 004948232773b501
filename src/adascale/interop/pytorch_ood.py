"""pytorch-ood: our detectors with its interface, and its detectors as methods here.

``pip install 'adascale[pytorch-ood]'``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from adascale.core.errors import AdascaleWarning, InputError
from adascale.core.extras import optional
from adascale.core.shards import Shards
from adascale.core.types import Head, Outputs
from adascale.decision.ood_detector import OODDetector
from adascale.detectors.base import Detector
from adascale.detectors.traits import FitsOn
from adascale.extraction.batches import batches

__all__ = ["as_pytorch_ood", "plugin"]


def as_pytorch_ood(detector: OODDetector) -> Any:
    """The detector as a ``pytorch_ood.api.Detector``: ``fit(loader)``, ``predict(images)`` and ``detector(images)``.

    Scores are ours, higher = more OOD, on the CPU in float64. As there, images with a label below 0 are unknown, and
    `fit` leaves them out. A detector that is fitted already can be used at once. ``.ours`` is the detector itself.
    """
    api = optional("pytorch_ood.api", "pytorch-ood")

    class AsPytorchOOD(api.Detector):  # type: ignore[misc, name-defined]
        requires_fit = True

        def __init__(self, ours: OODDetector) -> None:
            self.ours = ours

        def fit(self, data_loader: Any) -> Any:
            self.ours.fit(KnownImages(data_loader, self.ours.batch_size))
            return self

        def predict(self, x: Tensor) -> Tensor:
            if self.ours.calibration is None:
                raise api.RequiresFittingException
            return self.ours.score(x)

    return AsPytorchOOD(detector)


def plugin(name: str, make: Callable[[nn.Linear], Any], *, fits_on: FitsOn = "train+labels") -> type[Detector]:
    """A method here that asks a detector of pytorch-ood for its scores.

    ``make`` is given the last layer of the network and returns the detector, without a network: one of logits, of
    features or of feature maps (which have one pixel here). Put it into a file of yours,
    ``Theirs = plugin("their_knn", lambda head: KNN(None, k=20))``, and ``--method file.py:Theirs`` runs it in `bench`.
    What such a detector has learned cannot be saved.
    """
    api = optional("pytorch_ood.api", "pytorch-ood")
    kinds = {api.LogitsDetector: "logits", api.FeaturesDetector: "features", api.FeatureMapsDetector: "feature_maps"}

    def made(head: Head) -> tuple[Any, str]:
        theirs = make(_linear(head))
        for kind, of in kinds.items():
            if isinstance(theirs, kind):
                return theirs, of
        raise InputError(
            f"{type(theirs).__name__} takes neither logits nor features; such a detector cannot be a method."
        )

    return _method(name, made, fits_on)


def _method(name: str, make: Callable[[Head], tuple[Any, str]], on: FitsOn) -> type[Detector]:
    @dataclass
    class Theirs(Detector):
        """``S = predict(...)`` of a detector of pytorch-ood."""

        summary: ClassVar[str] = "a detector of pytorch-ood"
        fits_on: ClassVar[FitsOn] = on
        cost = "bank"

        def fit(self, reference: Outputs | Shards | None, head: Head, train: Outputs | Shards | None = None) -> Theirs:
            self._theirs, self._of = make(head)
            super().fit(reference, head, train)
            return self

        def _fit(self, reference: Outputs, head: Head) -> None:
            labels = torch.zeros(len(reference), dtype=torch.int64) if reference.labels is None else reference.labels
            self._called("fit", reference, labels)

        def _score(self, outputs: Outputs) -> Tensor:
            return torch.as_tensor(self._called("predict", outputs)).detach().double()

        def _called(self, verb: str, outputs: Outputs, *more: Tensor) -> Any:
            given = outputs.logits if self._of == "logits" else outputs.features
            given = given.float()[:, :, None, None] if self._of == "feature_maps" else given.float()
            return getattr(self._theirs, f"{verb}_{self._of}")(given, *more)

        def state(self) -> dict[str, Tensor]:
            raise InputError(f"{self.name} is a detector of pytorch-ood, which cannot be saved; use it in bench.")

        def restore(self, state: Mapping[str, Tensor], head: Head) -> Theirs:
            raise InputError(f"{self.name} is a detector of pytorch-ood, which cannot be saved.")

    Theirs.name = name
    return Theirs


def _linear(head: Head) -> nn.Linear:
    layer = nn.Linear(head.weight.shape[1], head.weight.shape[0]).requires_grad_(False)
    layer.weight.data, layer.bias.data = head.weight.detach().float(), head.offset.float()
    return layer


class KnownImages:
    """The batches of a loader without the images whose label is below 0, as often as the loader can be read."""

    def __init__(self, loader: Any, batch_size: int) -> None:
        self._loader, self._batch_size = loader, batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor] | Tensor]:
        left_out = 0
        for images, labels in batches(self._loader, self._batch_size):
            if labels is None:
                yield images
                continue
            known = labels >= 0
            left_out += int((~known).sum())
            if known.any():
                yield images[known], labels[known]
        if left_out:
            warnings.warn(f"{left_out} images have a label below 0 and are left out.", AdascaleWarning, stacklevel=2)
