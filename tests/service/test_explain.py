"""Explanations: the numbers of the method itself, from the passes of the verdict, small and ready for JSON."""

from __future__ import annotations

import base64
import io
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from adascale import OODDetector, Outputs, Preprocess, View, extract_batch
from adascale.detectors.adaptive import Adaptive
from adascale.maths.activations import energy
from adascale.service.explain import explained
from adascale.service.seen import mask_of, picture_of
from tests.conftest import SmallNet, images, seeded

PREPROCESS = Preprocess(size=16, crop=16, mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))
NAMES = ("ant", "bee", "cat", "dog", "eel")


def made(method: str = "combined", **parameters: Any) -> OODDetector:
    detector = OODDetector(seeded(SmallNet), method, preprocess=PREPROCESS, classes=NAMES, **parameters)
    return detector.fit(images(60), tune=False)


def asked(detector: OODDetector, given: Tensor) -> tuple[Outputs, list[dict[str, Any]]]:
    """The outputs of the verdict, and the explanation made from them."""
    moved: dict[View, Tensor] = {}
    outputs = extract_batch(detector.classifier, given, detector.method.views, moved=moved)
    found = explained(detector, given, outputs, moved)
    return outputs, [{**one, **one["explanation"]} for one in found]


@pytest.fixture(scope="module")
def combined() -> OODDetector:
    return made()


def places(mask: dict[str, Any]) -> Tensor:
    bits = np.unpackbits(np.frombuffer(base64.b64decode(mask["bits"]), dtype=np.uint8))
    return torch.from_numpy(bits[: mask["width"] * mask["height"]].reshape(mask["height"], mask["width"]).astype(bool))


def test_members_add_up_to_the_score_and_the_loudest_adds_most(combined: OODDetector) -> None:
    given = images(5, seed=3)
    outputs, found = asked(combined, given)
    verdict = combined.judge(outputs)
    for i, one in enumerate(found):
        adds = {member["name"]: member["adds"] for member in one["members"]}
        assert adds == one["evidence"]
        assert sum(adds.values()) == pytest.approx(verdict.score[i].item())
        assert adds[one["loudest"]] == max(adds.values())
        assert all(0 < member["share"] < 1 for member in one["members"])


def test_usual_evidence_is_that_of_the_images_learned_from(combined: OODDetector) -> None:
    _, found = asked(combined, images(200, seed=9))
    for place, name in enumerate(combined.method.speakers):
        member = [one["members"][place] for one in found]
        assert member[0]["name"] == name
        mean = sum(one["adds"] for one in member) / len(member)
        assert mean == pytest.approx(member[0]["usual"], rel=0.5)


def test_probabilities_are_those_of_the_softmax(combined: OODDetector) -> None:
    outputs, found = asked(combined, images(4, seed=1))
    for i, one in enumerate(found):
        p = torch.softmax(outputs.logits[i].double(), 0)
        assert one["probability"] == one["classes"][0]["probability"] == pytest.approx(p.max().item())
        assert one["classes"][0] | {"probability": 0} == {
            "prediction": int(p.argmax()),
            "class": NAMES[int(p.argmax())],
            "probability": 0,
        }
        listed = [entry["probability"] for entry in one["classes"]]
        assert len(listed) == 3
        assert listed == sorted(listed, reverse=True)


@pytest.mark.parametrize(
    ("method", "pixels"), [("adascale_a", "trivial"), ("adascale_l", "trivial"), ("combined", "random")]
)
def test_the_steps_of_adascale_follow_from_each_other(method: str, pixels: str) -> None:
    detector = made(method, more_pairs=(50.0, 70.0))
    given = images(6, seed=5)
    outputs, found = asked(detector, given)
    part = next(part for part in detector.method.parts.values() if isinstance(part, Adaptive))
    scores = part.score(outputs)
    for i, one in enumerate(found):
        step = one["adascale"]
        assert (step["name"], step["pixels"]) == (part.name, pixels)
        assert step["q_prime"] == pytest.approx(part.lam * step["q"] + step["c_o"])
        assert step["rank"] == int((part.reference_ <= step["q_prime"]).sum())
        assert step["share"] == pytest.approx(step["rank"] / step["reference"])
        assert step["percentile"] == pytest.approx(
            step["p_min"] + (1 - step["share"]) * (step["p_max"] - step["p_min"])
        )
        assert step["ratio"] >= 1
        assert step["energy"] == pytest.approx(energy(outputs.logits)[i].item())
        assert step["scaled_energy"] == pytest.approx(-scores[i].item())
        shift = step["shift"]
        a, ae = outputs.features[i], outputs.views[part.view][i]
        strongest = a.argsort(descending=True, stable=True)[:40]
        assert shift["each"] == shift["counted"] == 1  # 1 % of 128 features
        assert shift["moved"] == pytest.approx((ae - a).abs()[strongest].tolist(), rel=1e-3)
        assert shift["activation"] == pytest.approx(a[strongest].tolist(), rel=1e-3)


def test_many_activations_share_a_bar() -> None:
    detector, given = made("adascale_l", k1=20.0), images(2)
    outputs, found = asked(detector, given)
    for i, one in enumerate(found):
        step, shift = one["adascale"], one["adascale"]["shift"]
        assert (shift["counted"], shift["each"], len(shift["moved"])) == (25, 3, 40)
        ranked = outputs.features[i].sort(descending=True).values
        assert shift["activation"][0] == pytest.approx(ranked[:3].mean().item(), rel=1e-3)
        assert 3 * sum(shift["moved"][:8]) < step["q"] < 3 * sum(shift["moved"][:9])  # 24 and 27 activations


@pytest.mark.parametrize(
    ("method", "pixels"), [("adascale_a", "trivial"), ("adascale_a", "salient"), ("combined", "random")]
)
def test_the_mask_shows_the_pixels_that_were_moved(method: str, pixels: str) -> None:
    detector, given = made(method, pixels=pixels), images(3, seed=2)
    _, found = asked(detector, given)
    for one in found:
        step = one["adascale"]
        assert step["of"] == 3 * 16 * 16
        assert step["values"] == math.floor(0.05 * step["of"])
        assert step["values"] / 3 <= places(step["mask"]).sum() <= step["values"]
    masks = [step["adascale"]["mask"]["bits"] for step in found]
    assert (len(set(masks)) == 1) is (pixels == "random")


def test_without_a_record_of_the_gradient_there_is_no_mask_but_the_count() -> None:
    detector, given = made("adascale_a"), images(2)
    outputs = extract_batch(detector.classifier, given, detector.method.views)
    for one in explained(detector, given, outputs):
        step = one["explanation"]["adascale"]
        assert (step["mask"], step["values"]) == (None, 38)


def test_no_pass_is_made(combined: OODDetector) -> None:
    given = images(2)
    outputs = extract_batch(combined.classifier, given, combined.method.views)

    def refuse(*_: object) -> None:
        pytest.fail("the network was run")

    hook = combined.classifier.model.register_forward_pre_hook(refuse)
    try:
        assert len(explained(combined, given, outputs)) == 2
    finally:
        hook.remove()


def test_methods_without_steps_say_what_there_is() -> None:
    detector = made("msp")
    (one,) = asked(detector, images(1))[1]
    assert (one["members"], one["loudest"], one["adascale"]) == ([], None, None)
    assert 0 < one["probability"] <= 1


@pytest.mark.parametrize("method", ["combined", "adascale_a", "gen"])
def test_images_that_are_not_finite_leave_gaps_and_valid_json(method: str) -> None:
    detector, given = made(method), images(3)
    given[1] = math.nan
    _, found = asked(detector, given)
    json.dumps(found, allow_nan=False)
    assert found[1]["probability"] is None
    assert found[1]["adascale"] is None
    alone = asked(detector, given[2:])[1][0]
    assert found[2]["probability"] == pytest.approx(alone["probability"])
    assert (found[2]["adascale"] is None) is (method == "gen")


def test_an_explanation_is_small_for_large_pictures() -> None:
    mask = mask_of(torch.rand(3, 700, 900, generator=torch.Generator().manual_seed(0)) < 0.05)
    shown = picture_of(images(1, size=900)[0, :, :700], PREPROCESS)
    assert shown is not None
    assert (mask["width"], mask["height"]) == (225, 175)
    assert (shown["width"], shown["height"]) == (900, 700)
    assert len(mask["bits"]) < 12_000
    assert len(shown["picture"]) < 120_000


def test_a_place_of_a_large_mask_stands_for_its_pixels() -> None:
    moved = torch.zeros(1, 512, 512, dtype=torch.bool)
    moved[0, 3, 511] = True
    found = places(mask_of(moved))
    assert found.nonzero().tolist() == [[1, 255]]


@pytest.mark.parametrize(("channels", "mean"), [(3, (0.5, 0.4, 0.3)), (1, (0.3,))])
def test_the_picture_is_what_the_network_got(channels: int, mean: tuple[float, ...]) -> None:
    preprocess = Preprocess(size=16, crop=16, mean=mean, std=mean)
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    shown = picture_of(preprocess(pixels), preprocess)
    assert shown is not None
    with Image.open(io.BytesIO(base64.b64decode(shown["picture"].split(",")[1]))) as again:
        expected = np.asarray(preprocess.coloured(Image.fromarray(pixels)))
        assert np.array_equal(np.asarray(again), expected)
        assert len(again.getbands()) == channels


def test_without_preprocessing_there_is_no_picture() -> None:
    assert picture_of(images(1)[0], None) is None
