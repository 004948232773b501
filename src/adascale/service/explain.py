"""Why a detector answered as it did, image by image, as plain values for the page: from the passes of the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from adascale.core.types import Outputs, View
from adascale.decision.explaining import Explanation, Member, explanations
from adascale.decision.ood_detector import OODDetector
from adascale.decision.tracing import Trace
from adascale.images.preprocess import Preprocess
from adascale.service.seen import mask_of, picture_of

_BARS = 40  # of the strongest activations; those that count for Q take at most ten of them


def explained(
    detector: OODDetector, images: Tensor, outputs: Outputs, moved: Mapping[View, Tensor] | None = None
) -> list[dict[str, Any]]:
    """One dict of JSON values for each image, from the inputs (N, C, H, W) and the `Outputs` that gave the verdict.

    probability: that of the predicted class (softmax). evidence: what each member of `Combined` adds to the score.
    explanation: classes, the most probable ones; members, what is usual for them (see `Member`); loudest, the one
    that adds most; adascale, what AdaSCALE measured, alone or as a member (see `_adascale`); input, the picture as the
    network got it. What a method does not have is None or empty. moved: the masks that `extract_batch` gives for views
    with gradients; without them such a mask is None.
    """
    return [_values(one, detector.preprocess) for one in explanations(detector, images, outputs, moved)]


def _values(found: Explanation, preprocess: Preprocess | None) -> dict[str, Any]:
    members = [_member(one) for one in found.members]
    return {
        "probability": found.classes[0].probability if found.classes else None,
        "evidence": {member["name"]: member["adds"] for member in members},
        "explanation": {
            "classes": [
                {"prediction": one.prediction, "class": one.label, "probability": one.probability}
                for one in found.classes
            ],
            "members": members,
            "loudest": max(members, key=lambda one: one["adds"] or 0.0)["name"] if members else None,
            "adascale": None if found.trace is None else _adascale(found.trace),
            "input": picture_of(found.image, preprocess),
        },
    }


def _member(one: Member) -> dict[str, Any]:
    return {"name": one.name, "adds": _number(one.adds), "usual": one.usual, "share": one.share}


def _adascale(trace: Trace) -> dict[str, Any]:
    """The steps of AdaSCALE.

    values: how many channel values of the input were moved by ``epsilon``, out of how many. mask: the pixels they
    belong to. rank: ``F`` as a place among the reference images. shift: means of ``|a_eps - a|`` and of ``a`` over
    ``each`` activations, from the strongest on; the first ``counted`` activations make ``Q``.
    """
    part, each = trace.method, math.ceil(trace.k1 / 10)
    names = ("q", "c_o", "share", "percentile", "ratio", "energy", "scaled_energy")
    return {
        "name": part.name,
        "statistic": part.statistic,
        "p_min": part.percentile_at(1.0),
        "p_max": part.percentile_at(0.0),
        "reference": len(trace.reference),
        "usual": _number(trace.usual),
        **{name: _number(getattr(trace, name)) for name in names},
        "q_prime": _number(trace.statistic),
        "rank": trace.rank,
        "shift": {
            "features": len(trace.activations),
            "counted": trace.k1,
            "each": each,
            "moved": _by_rank((trace.perturbed - trace.activations).abs(), each),
            "activation": _by_rank(trace.activations, each),
        },
        "pixels": trace.view.pixels,
        "values": trace.values,
        "of": trace.of,
        "epsilon": trace.view.step,
        "mask": None if trace.mask is None else mask_of(trace.mask),
    }


def _by_rank(ranked: Tensor, each: int) -> list[float]:
    """The means of the strongest values, which come first, ``each`` of them at a time."""
    return [float(f"{float(part.mean()):.4g}") for part in torch.split(ranked[: _BARS * each].double(), each)]


def _number(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None
