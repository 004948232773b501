"""From images to `Outputs`: one clean pass, one input gradient if a view needs it, one pass per distinct view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adascale.core.types import Outputs, View
from adascale.extraction.batches import batches
from adascale.extraction.perturb import perturb
from adascale.network.classifier import Classifier


def extract_batch(
    classifier: Classifier,
    images: Tensor,
    views: Sequence[View] = (),
    labels: Tensor | None = None,
    moved: MutableMapping[View, Tensor] | None = None,
) -> Outputs:
    """What the methods need to know about one batch, on the CPU.

    If no view needs a gradient, clean and perturbed images go through the network together in inference mode.
    Otherwise there is one pass with the input gradient, then one pass for each view, all of them in torch. moved: is
    given a mask (N, C, H, W) of the values that were perturbed, for each view that depends on the gradient; of the
    others `perturb.moved_anyway` tells it.
    """
    if not classifier.located:
        classifier.locate(images)
    views = list(dict.fromkeys(views))
    with classifier.ready():
        if any(view.needs_gradient for view in views):
            features, logits, gradients = _with_gradients(classifier, images, views)
            perturbed = list(_perturbed(classifier, images, views, gradients, moved))
        else:
            clean = classifier.prepare(images, copy=False)
            stacked = torch.cat([clean, *(perturb(clean, None, view) for view in views)]) if views else clean
            all_features, all_logits = classifier.forward(stacked)
            features, *perturbed = torch.split(all_features, len(images))
            logits = all_logits[: len(images)]
    return Outputs(
        _kept(logits), _kept(features), {view: _kept(a) for view, a in zip(views, perturbed, strict=True)}, labels
    )


def extract_views(classifier: Classifier, images: Tensor, views: Sequence[View]) -> dict[View, Tensor]:
    """The perturbed features of images whose clean outputs are known: one pass for each view, one for the gradient."""
    gradients: dict[float | None, Tensor] = {}
    with classifier.ready():
        if any(view.needs_gradient for view in views):
            *_, gradients = _with_gradients(classifier, images, views)
        perturbed = _perturbed(classifier, images, views, gradients)
        return {view: _kept(a) for view, a in zip(views, perturbed, strict=True)}


def _with_gradients(
    classifier: Classifier, images: Tensor, views: Sequence[View]
) -> tuple[Tensor, Tensor, dict[float | None, Tensor]]:
    """Features, logits and the input gradient for each objective that occurs in the views."""
    objectives = list(dict.fromkeys(view.temperature for view in views if view.needs_gradient))
    features, logits, gradients = classifier.forward_with_gradients(images, objectives)
    return features, logits, dict(zip(objectives, gradients, strict=True))


def _perturbed(
    classifier: Classifier,
    images: Tensor,
    views: Sequence[View],
    gradients: Mapping[float | None, Tensor],
    moved: MutableMapping[View, Tensor] | None = None,
) -> Iterator[Tensor]:
    clean = classifier.prepare(images, copy=False)
    for view in views:
        perturbed = perturb(clean, gradients.get(view.temperature), view)
        if moved is not None and view.needs_gradient:
            moved[view] = (perturbed != clean).cpu()
        yield classifier.features(perturbed, in_torch=bool(gradients))


def extract(classifier: Classifier, source: Any, views: Sequence[View] = (), batch_size: int = 32) -> Iterator[Outputs]:
    """`Outputs` batch by batch, from any source that `batches` accepts."""
    for images, labels in batches(source, batch_size):
        yield extract_batch(classifier, images, views, labels)


def _kept(tensor: Tensor) -> Tensor:
    """A copy on the CPU: an ordinary tensor that owns its memory, not an inference tensor or a slice of a batch."""
    with torch.inference_mode(False):
        return tensor.detach().to("cpu", torch.promote_types(tensor.dtype, torch.float32), copy=True)
