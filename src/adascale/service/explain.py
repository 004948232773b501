"""Why a detector answered as it did, image by image, as plain values for the page: from the passes of the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from adascale.core.answers import label_of
from adascale.core.types import Outputs, View
from adascale.decision.ood_detector import OODDetector
from adascale.detectors.adaptive import Adaptive
from adascale.detectors.base import Detector
from adascale.detectors.combined import Combined
from adascale.detectors.rows import finite_rows
from adascale.extraction.perturb import moved_anyway, pixel_count
from adascale.maths.activations import top_count
from adascale.service.seen import mask_of, picture_of

_CLASSES = 3  # the most probable ones that are listed
_BARS = 40  # of the strongest activations; those that count for Q take at most ten of them


def explained(
    detector: OODDetector, images: Tensor, outputs: Outputs, moved: Mapping[View, Tensor] | None = None
) -> list[dict[str, Any]]:
    """One dict of JSON values for each image, from the inputs (N, C, H, W) and the `Outputs` that gave the verdict.

    probability: that of the predicted class (softmax). evidence: what each member of `Combined` adds to the score.
    explanation: classes, the most probable ones; members, what is usual for them (see `_members`); loudest, the one
    that adds most; adascale, what AdaSCALE measured, alone or as a member (see `_adascale`); input, the picture as the
    network got it. What a method does not have is None or empty. moved: the masks that `extract_batch` gives for views
    with gradients; without them such a mask is None.
    """
    members, steps = _members(detector.method, outputs), _adascale(detector.method, images, outputs, moved or {})
    classes = _classes(outputs.logits, detector.class_names)
    return [
        {
            "probability": classes[i][0]["probability"] if classes[i] else None,
            "evidence": {member["name"]: member["adds"] for member in members[i]},
            "explanation": {
                "classes": classes[i],
                "members": members[i],
                "loudest": max(members[i], key=lambda one: one["adds"] or 0.0)["name"] if members[i] else None,
                "adascale": steps[i],
                "input": picture_of(images[i], detector.preprocess),
            },
        }
        for i in range(len(outputs))
    ]


def _classes(logits: Tensor, names: tuple[str, ...]) -> list[list[dict[str, Any]]]:
    """The most probable classes of each image, first the predicted one; none where a logit is not finite."""
    found = torch.softmax(logits.double(), 1).topk(min(_CLASSES, logits.shape[1]), dim=1)
    rows = zip(found.indices.tolist(), found.values.tolist(), strict=True)
    return [
        [
            {"prediction": place, "class": label_of(place, names), "probability": value}
            for place, value in zip(places, values, strict=True)
            if math.isfinite(value)
        ]
        for places, values in rows
    ]


def _members(method: Detector, outputs: Outputs) -> list[list[dict[str, Any]]]:
    """What each member adds to the score, in their order; usual: what it adds to an ID image on average, since minus
    the logarithm of a uniform share has mean 1; share: that of the ID images which are as unusual to the member.
    """
    if not isinstance(method, Combined):
        return [[] for _ in range(len(outputs))]
    weights = {name: float(voice.weight) for name, voice in method.voices_.items()}
    evidence = {name: adds.tolist() for name, adds in method.explained(outputs)[1].items()}
    return [
        [
            {
                "name": name,
                "adds": _number(adds[i]),
                "usual": weights[name],
                "share": math.exp(-adds[i] / weights[name]) if weights[name] else None,
            }
            for name, adds in evidence.items()
        ]
        for i in range(len(outputs))
    ]


def _adascale(
    method: Detector, images: Tensor, outputs: Outputs, moved: Mapping[View, Tensor]
) -> list[dict[str, Any] | None]:
    """The steps of the first AdaSCALE among the method's parts; None where there is none, or the image is not finite.

    values: how many channel values of the input were moved by ``epsilon``, out of how many. mask: the pixels they
    belong to. rank: ``F`` as a place among the reference images. shift: means of ``|a_eps - a|`` and of ``a`` over
    ``each`` activations, from the strongest on; the first ``counted`` activations make ``Q``.
    """
    part = next((part for part in method.parts.values() if isinstance(part, Adaptive)), None)
    if part is None or part.view not in outputs.views:
        return [None] * len(outputs)
    finite = finite_rows(outputs, (part.view,))
    rows = iter(_measured(part, outputs if finite.all() else outputs[finite]))
    masks = _masks(images, part.view, moved)
    return [next(rows) | _perturbed(part, images[i], masks[i]) if usable else None for i, usable in enumerate(finite)]


def _measured(part: Adaptive, outputs: Outputs) -> list[dict[str, Any]]:
    """The numbers of each step, for finite samples."""
    seen = part.diagnostics(outputs)
    n, size = len(part.reference_), outputs.features.shape[1]
    names = ("q", "c_o", "q_prime", "share", "percentile", "ratio", "energy", "scaled_energy")
    known = {
        "name": part.name,
        "statistic": part.statistic,
        "p_min": part.percentile_at(1.0),
        "p_max": part.percentile_at(0.0),
        "reference": n,
        "usual": _number(float(part.reference_[(n - 1) // 2])),
    }
    counted = top_count(size, part.k1)
    each = math.ceil(counted / 10)
    strengths = outputs.features.sort(dim=1, descending=True).values
    return [
        {
            **known,
            **{name: _number(float(seen[name][i])) for name in names},
            "rank": round(float(seen["share"][i]) * n),
            "shift": {
                "features": size,
                "counted": counted,
                "each": each,
                "moved": _by_rank(seen["shift_by_rank"][i], each),
                "activation": _by_rank(strengths[i], each),
            },
        }
        for i in range(len(outputs))
    ]


def _perturbed(part: Adaptive, image: Tensor, mask: Tensor | None) -> dict[str, Any]:
    total, view = image.numel(), part.view
    values = (
        int(mask.sum()) if mask is not None else total if view.pixels == "all" else pixel_count(total, part.fraction)
    )
    return {
        "pixels": view.pixels,
        "values": values,
        "of": total,
        "epsilon": view.step,
        "mask": None if mask is None else mask_of(mask),
    }


def _masks(images: Tensor, view: View, moved: Mapping[View, Tensor]) -> list[Tensor | None]:
    if view in moved:
        return list(moved[view])
    return [moved_anyway(tuple(images.shape[1:]), view)] * len(images)


def _by_rank(ranked: Tensor, each: int) -> list[float]:
    """The means of the strongest values, which come first, ``each`` of them at a time."""
    return [float(f"{float(part.mean()):.4g}") for part in torch.split(ranked[: _BARS * each].double(), each)]


def _number(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None
