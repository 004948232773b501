"""From images to `Outputs`: one clean pass, one input gradient if a view needs it, one pass per distinct view.

Inner layers are read and reduced during the clean pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adascale.core.types import Goal, Layers, Need, Outputs, Tap, View
from adascale.extraction.batches import batches
from adascale.extraction.perturb import perturb
from adascale.network.classifier import Classifier

Tapped = Mapping[Tap, Layers]


def extract_batch(
    classifier: Classifier,
    images: Tensor,
    needs: Sequence[Need] = (),
    labels: Tensor | None = None,
    moved: MutableMapping[View, Tensor] | None = None,
) -> Outputs:
    """What the methods need to know about one batch, on the CPU: the logits, the features, and what ``needs`` asks for.

    If no view needs a gradient and no inner layer is asked for, clean and perturbed images go through the network
    together in inference mode. Otherwise there is one clean pass, with the input gradient if a view needs it, then one
    pass for each view, all of them in torch if there is a gradient. moved: is given a mask (N, C, H, W) of the values
    that were perturbed, for each view that depends on the gradient; of the others `perturb.moved_anyway` tells it.

    For example:

        >>> outputs = extract_batch(Classifier(model), images, [View()])
        >>> outputs.features.shape == outputs.views[View()].shape
        True
    """
    if not classifier.located:
        classifier.locate(images)
    views, taps = parted(needs)
    with classifier.ready():
        if taps or any(view.needs_gradient for view in views):
            features, logits, gradients, tapped = _clean(classifier, images, views, taps)
            perturbed = list(_perturbed(classifier, images, views, gradients, moved))
        else:
            clean, tapped = classifier.prepare(images, copy=False), {}
            of_input = [view for view in views if view.network is None]
            stacked = torch.cat([clean, *(perturb(clean, None, view) for view in of_input)]) if of_input else clean
            all_features, all_logits = classifier.forward(stacked)
            features, *others = torch.split(all_features, len(images))
            logits, moved_ones = all_logits[: len(images)], iter(others)
            perturbed = [next(moved_ones) if v.network is None else classifier.changed(clean, v) for v in views]
    found = {view: _kept(a) for view, a in zip(views, perturbed, strict=True)}
    return Outputs(_kept(logits), _kept(features), found, labels, _kept_layers(tapped))


def extract_needs(classifier: Classifier, images: Tensor, needs: Sequence[Need]) -> tuple[dict[View, Tensor], Tapped]:
    """The perturbed features of images whose clean outputs are known, and their inner layers: one pass for each view,
    one for the gradient and the inner layers.
    """
    gradients: dict[Goal, Tensor] = {}
    tapped: Tapped = {}
    views, taps = parted(needs)
    with classifier.ready():
        if taps or any(view.needs_gradient for view in views):
            *_, gradients, tapped = _clean(classifier, images, views, taps)
        perturbed = _perturbed(classifier, images, views, gradients)
        return {view: _kept(a) for view, a in zip(views, perturbed, strict=True)}, _kept_layers(tapped)


def extract_views(classifier: Classifier, images: Tensor, views: Sequence[View]) -> dict[View, Tensor]:
    """The perturbed features alone."""
    return extract_needs(classifier, images, views)[0]


def parted(needs: Sequence[Need]) -> tuple[list[View], list[Tap]]:
    """The distinct views and taps."""
    distinct = list(dict.fromkeys(needs))
    return [n for n in distinct if isinstance(n, View)], [n for n in distinct if isinstance(n, Tap)]


def _clean(
    classifier: Classifier, images: Tensor, views: Sequence[View], taps: Sequence[Tap]
) -> tuple[Tensor, Tensor, dict[Goal, Tensor], Tapped]:
    """Features, logits, the input gradient for each goal that occurs in the views, and the inner layers."""
    goals = list(dict.fromkeys(view.goal for view in views if view.needs_gradient))
    tapped: Tapped = {}
    if taps:
        features, logits, gradients, tapped = classifier.tapped(images, taps, goals)
    else:
        features, logits, gradients = classifier.forward_with_gradients(images, goals)
    return features, logits, dict(zip(goals, gradients, strict=True)), tapped


def _perturbed(
    classifier: Classifier,
    images: Tensor,
    views: Sequence[View],
    gradients: Mapping[Goal, Tensor],
    moved: MutableMapping[View, Tensor] | None = None,
) -> Iterator[Tensor]:
    clean = classifier.prepare(images, copy=False)
    for view in views:
        if view.network is not None:
            yield classifier.changed(clean, view)
            continue
        perturbed = perturb(clean, gradients.get(view.goal), view)
        if moved is not None and view.needs_gradient:
            moved[view] = (perturbed != clean).cpu()
        yield classifier.features(perturbed, in_torch=bool(gradients))


def extract(classifier: Classifier, source: Any, needs: Sequence[Need] = (), batch_size: int = 32) -> Iterator[Outputs]:
    """`Outputs` batch by batch, from any source that `batches` accepts.

    For example:

        >>> [len(outputs) for outputs in extract(Classifier(model), id_images, batch_size=40)]
        [40, 40, 20]
    """
    for images, labels in batches(source, batch_size):
        yield extract_batch(classifier, images, needs, labels)


def _kept_layers(tapped: Tapped) -> dict[Tap, Layers]:
    return {tap: tuple(map(_kept, layers)) for tap, layers in tapped.items()}


def _kept(tensor: Tensor) -> Tensor:
    """A copy on the CPU: an ordinary tensor that owns its memory, not an inference tensor or a slice of a batch."""
    with torch.inference_mode(False):
        return tensor.detach().to("cpu", torch.promote_types(tensor.dtype, torch.float32), copy=True)
