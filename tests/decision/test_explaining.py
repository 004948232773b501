"""Explanations: every number of a verdict follows from the ones before it, down to the activations."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from adascale import InputError, NotFittedError, OODDetector, Preprocess
from adascale.decision.explaining import Explanation, as_values
from tests.conftest import SmallNet, images, seeded

PREPROCESS = Preprocess(size=16, crop=16, mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))
NAMES = ("ant", "bee", "cat", "dog", "eel")


def made(method: str = "combined", **parameters: Any) -> OODDetector:
    detector = OODDetector(seeded(SmallNet), method, preprocess=PREPROCESS, classes=NAMES, **parameters)
    return detector.fit(images(60), tune=False)


def by_hand(found: Explanation, detector: OODDetector, logits: np.ndarray[Any, Any]) -> float:
    """AdaSCALE's score from the activations of the record and its parameters, by the formulas of the paper."""
    trace = found.trace
    assert trace is not None
    a, perturbed = (part.double().numpy() for part in (trace.activations, trace.perturbed))
    part, size = trace.method, len(a)
    k1, k2 = max(1, math.floor(size * part.k1 / 100)), max(1, math.floor(size * part.k2 / 100))
    q_prime = part.lam * np.abs(perturbed[:k1] - a[:k1]).sum() + np.maximum(perturbed[:k2], 0).sum()
    share = (trace.reference.numpy() <= q_prime).mean()
    ratios = []
    for low, high in part.pairs:
        p = low + (1 - share) * (high - low)
        kept = max(1, size - round(size * p / 100))
        ratios.append(np.maximum(a, 0).sum() / np.maximum(a[:kept], 0).sum())
    ratio, bias = np.mean(ratios), detector.classifier.head.offset.numpy()
    scaled = logits * ratio**2 if part.name == "adascale_l" else np.exp(ratio) * (logits - bias) + bias
    return -float(np.log(np.exp(scaled - scaled.max()).sum()) + scaled.max())


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("adascale_a", {}),
        ("adascale_l", {"more_pairs": (50.0, 70.0, 95.0, 95.0), "pixels": "random"}),
        ("combined", {}),
    ],
)
def test_the_traced_numbers_give_the_score_of_the_verdict(method: str, parameters: dict[str, Any]) -> None:
    detector = made(method, **parameters)
    for seed in range(4):
        given = images(1, seed=seed + 10)
        verdict, found = detector(given), detector.explain(given)
        assert (found.score, found.p_value, found.is_ood) == (
            verdict.score.item(), verdict.p_value.item(), verdict.is_ood.item(),
        )  # fmt: skip
        score = by_hand(found, detector, verdict.logits[0].double().numpy())
        assert found.trace is not None
        assert found.trace.score == pytest.approx(score, rel=1e-9)
        ratios = [one.ratio for one in found.trace.scalings]
        assert sum(ratios) / len(ratios) == pytest.approx(found.trace.ratio, rel=1e-9)
        if method == "combined":
            (own,) = (one for one in found.members if one.name == "adascale_l")
            assert own.score == pytest.approx(score, rel=1e-9)
            assert sum(one.adds for one in found.members) == pytest.approx(found.score, rel=1e-9)
            assert {one.name: one.adds for one in found.members} == {
                name: added.item() for name, added in verdict.evidence.items()
            }
        else:
            assert found.score == pytest.approx(score, rel=1e-9)


def test_each_step_follows_from_the_numbers_before_it() -> None:
    found = made("adascale_a").explain(images(1, seed=3))
    step = {one.symbol: one.value for one in found.steps}
    trace, known = found.trace, found.calibration
    assert trace is not None
    q, c_o, share, ratio = (step[symbol] for symbol in ("Q", "C_o", "F", "r"))
    assert q is not None
    assert c_o is not None
    assert share is not None
    assert ratio is not None
    assert step["Q'"] == pytest.approx(10 * q + c_o)
    assert share == trace.rank / len(trace.reference)
    assert trace.percentile == pytest.approx(trace.scalings[0].p_min + (1 - share) * 25 * 128 / 2048, abs=0.05)
    assert step["e^r"] == pytest.approx(math.exp(ratio))
    assert step["S(adascale_a)"] == pytest.approx(-(step["E after"] or 0))
    as_high = int((known.scores >= found.score).sum())
    assert step["p-value"] == pytest.approx((1 + as_high) / (len(known.scores) + 1))
    assert step["τ"] == known.threshold
    assert found.steps[-1].meaning == ("out-of-distribution" if found.score > known.threshold else "in-distribution")


def test_the_mask_has_the_pixels_with_the_smallest_gradient() -> None:
    detector, given = made("adascale_a"), images(1, seed=2)
    found = detector.explain(given).trace
    assert found is not None
    assert found.mask is not None
    assert int(found.mask.sum()) == found.values == math.floor(0.05 * 3 * 16 * 16)
    with_gradient = given.clone().requires_grad_()
    logits = detector.classifier.model(with_gradient)
    logits[0, logits.argmax()].backward()
    assert with_gradient.grad is not None
    size = with_gradient.grad[0].abs()
    assert size[found.mask].max() <= size[~found.mask].min()


def test_other_methods_say_what_is_known() -> None:
    found = made("msp").explain(images(1))
    assert (found.members, found.trace, found.loudest) == ((), None, None)
    assert [step.symbol for step in found.steps] == ["S", "p-value", "τ", "verdict"]
    assert found.steps[0].value == found.score
    assert found.classes[0].label in NAMES


def test_one_image_is_explained_and_only_one() -> None:
    detector = made("adascale_l")
    with pytest.raises(InputError, match=r"explain got 2 images; give one\."):
        detector.explain(images(2))
    with pytest.raises(NotFittedError):
        OODDetector(seeded(SmallNet)).explain(images(1))


@pytest.mark.parametrize("method", ["combined", "adascale_a"])
def test_an_image_that_is_not_finite_is_told_as_json(method: str) -> None:
    found = made(method).explain(torch.full((1, 3, 16, 16), math.nan))
    assert found.is_ood
    assert found.trace is None
    assert json.loads(json.dumps(as_values(found), allow_nan=False))["score"] is None
