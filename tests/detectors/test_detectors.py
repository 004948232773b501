"""Every method on the one contract, and what each promises by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from adascale import AdascaleWarning, Detector, Head, InputError, NotFittedError, Outputs, View, detectors
from adascale.detectors.adaptive import Adaptive
from adascale.detectors.ebo import EBO
from adascale.detectors.mls import MLS
from adascale.detectors.msp import MSP
from adascale.detectors.shaping import LOGIT_SCORES, Shaping
from adascale.maths.activations import energy
from adascale.testing import CHECKS, check_detector, example_outputs
from tests.inside import INSIDE

ADAPTIVE = [cls for cls in detectors.ALL if issubclass(cls, Adaptive)]


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("cls", detectors.ALL, ids=lambda cls: cls.name)
def test_contract(cls: type[Detector], check: object) -> None:
    check(cls)  # type: ignore[operator]


def test_the_contract_can_be_broken() -> None:
    @dataclass
    class Upside(MSP):
        def _score(self, outputs: Outputs) -> torch.Tensor:
            return -super()._score(outputs)

    @dataclass
    class Batchy(MLS):
        def _score(self, outputs: Outputs) -> torch.Tensor:
            return super()._score(outputs) - outputs.logits.mean()

    @dataclass
    class Greedy(EBO):
        def _score(self, outputs: Outputs) -> torch.Tensor:
            return -energy(outputs.logits.mul_(2))

    for broken, words in ((Upside, "scores higher"), (Batchy, "one by one"), (Greedy, "one by one|unchanged")):
        with pytest.raises(AssertionError, match=words):
            check_detector(broken)


def test_the_researchers_line() -> None:
    outputs, head = example_outputs(20, ())
    scores = detectors.get("scale")(percentile=85).fit(outputs, head).score(outputs)
    assert torch.equal(scores, detectors.SCALE().fit(None, head).score(outputs))


@pytest.mark.parametrize("cls", ADAPTIVE, ids=lambda cls: cls.name)
@pytest.mark.parametrize("statistic", ["q_prime", "q", "c_o", "top", "q_top"])
def test_one_percentile_is_the_fixed_method(cls: type[Adaptive], statistic: str) -> None:
    """p_min = p_max: SCALE resp. LTS, whatever the statistic."""
    detector = cls(p_min=80, p_max=80, statistic=statistic)  # type: ignore[arg-type]
    outputs, head = example_outputs(50, (View(),))
    fixed = detectors.SCALE(80) if cls.name == "adascale_a" else detectors.LTS(80)
    assert torch.equal(detector.fit(outputs, head).score(outputs), fixed.fit(None, head).score(outputs))


def test_statistics_by_hand() -> None:
    # D = 4: k1 = 50 % -> 2 entries, k2 = 75 % -> 3 entries; order of a: 1, 0, 2, 3
    a, ae = torch.tensor([[3.0, 5.0, 1.0, -2.0]]), torch.tensor([[2.5, 6.0, -1.0, 7.0]])
    outputs = Outputs(torch.zeros(1, 2), a, {View(): ae})
    expected = {
        "q": 1.0 + 0.5,  # |6 - 5| + |2.5 - 3|
        "c_o": 6.0 + 2.5 + 0.0,  # ReLU(-1) = 0
        "top": 5.0 + 3.0 + 1.0,
        "q_prime": 10 * 1.5 + 8.5,
        "q_top": 10 * 1.5 + 9.0,
    }
    for statistic, value in expected.items():
        detector = detectors.AdaSCALE_A(k1=50, k2=75, statistic=statistic)
        assert detector.shift_statistic(outputs).item() == pytest.approx(value, abs=1e-6)
    shift = detectors.ActivationShift(k1=50).fit(None, Head(torch.zeros(2, 4)))
    assert shift.score(outputs).item() == pytest.approx(1.5, abs=1e-6)


def test_a_small_network_still_uses_one_feature() -> None:
    """1 % of 64 features is less than one; the reference code takes none, and its Q is always 0."""
    a = torch.zeros(1, 64)
    a[0, 7] = 2.0
    outputs = Outputs(torch.zeros(1, 2), a, {View(): a + 0.25})
    assert detectors.AdaSCALE_A(statistic="q").shift_statistic(outputs).item() == 0.25


@pytest.mark.parametrize("cls", ADAPTIVE, ids=lambda cls: cls.name)
def test_a_larger_shift_lowers_the_percentile_and_raises_the_score(cls: type[Adaptive]) -> None:
    reference, head = example_outputs(100, (View(),))
    detector = cls().fit(reference, head)
    one = reference[:1]
    calm = Outputs(one.logits, one.features, {View(): one.features})
    shaken = Outputs(one.logits, one.features, {View(): one.features + 1})
    assert detector.percentiles(calm) > detector.percentiles(shaken)
    assert detector.ratios(calm) > detector.ratios(shaken)
    assert detector.score(calm) < detector.score(shaken)


def test_signed_features_warn_where_the_method_was_not_made_for_them() -> None:
    features = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
    head = Head(torch.ones(3, 32))
    outputs = Outputs(head(features), features)
    with pytest.warns(AdascaleWarning, match="relu=True"):
        detectors.SCALE().fit(None, head).score(outputs)
    rectified = Outputs(outputs.logits, features.clamp_min(0))
    scores = detectors.SCALE(relu=True).fit(None, head).score(outputs)  # a warning would be an error here
    assert torch.equal(scores, detectors.SCALE().fit(None, head).score(rectified))


def test_presets_come_from_the_table() -> None:
    assert detectors.preset("adascale_a", "imagenet", "ResNet50") == {"p_min": 80, "p_max": 85, "k2": 5}
    assert detectors.preset("adascale_l", "cifar100", "densenet_101") == {"p_min": 65, "p_max": 75, "k2": 50}
    assert len(detectors.PRESETS) == 24
    for (method, *_), parameters in detectors.PRESETS.items():
        assert detectors.get(method)(**parameters).parameters["lam"] == 10
    with pytest.raises(InputError, match="imagenet/resnet-50"):
        detectors.preset("adascale_a", "imagenet", "alexnet")


@pytest.mark.parametrize("name", ["react", "ash_s", "scale", "adascale_a", "dice"])
def test_any_logit_score_on_any_shaping(name: str) -> None:
    reference, head = example_outputs(200, (View(),))
    for score, reader in LOGIT_SCORES.items():
        detector = detectors.get(name)(logit_score=score).fit(reference, head)
        assert isinstance(detector, Shaping)
        assert torch.equal(detector.score(reference), reader(detector.shaped_logits(reference)))
    plain = detectors.get("react")(percentile=100, logit_score="gen").fit(reference, head).score(reference)
    assert torch.allclose(plain, detectors.GEN().fit(None, head).score(reference), rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "count", "labels", "words"),
    [
        ("knn", 20, True, "k=50 got 20 training samples"),
        ("nnguide", 20, True, "k=100 got 20 training samples"),
        ("mds", 50, False, "needs the training labels"),
        ("line", 5, True, "sample of every class"),
        ("she", 5, True, "correctly classified training sample of every class"),
        ("vim", 0, True, "got none"),
    ],
)
def test_too_little_gets_a_sentence(name: str, count: int, labels: bool, words: str) -> None:
    outputs, head = example_outputs(count, ())
    given = Outputs(outputs.logits, outputs.features, labels=outputs.labels if labels else None)
    with pytest.raises(InputError, match=words):
        detectors.get(name)().fit(given, head)


@pytest.mark.parametrize("name", ["mds", "rmds"])
def test_one_sample_a_class_has_no_covariance(name: str) -> None:
    outputs, head = example_outputs(50, ())
    assert outputs.labels is not None
    one_each = torch.stack([torch.nonzero(outputs.labels.eq(c))[0, 0] for c in range(10)])
    with pytest.raises(InputError, match="differ within their classes"):
        detectors.get(name)().fit(outputs[one_each], head)


def test_foreign_labels_are_named() -> None:
    outputs, head = example_outputs(50, ())
    with pytest.raises(InputError, match="must be 0 to 9"):
        detectors.MDS().fit(Outputs(outputs.logits, outputs.features, labels=torch.full((50,), 10)), head)


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("adascale_a", {"p_min": 90, "p_max": 80}, "above p_max"),
        ("adascale_a", {"p_max": 101}, "percentage from 0 to 100"),
        ("adascale_l", {"k1": -1}, "percentage"),
        ("adascale_a", {"lam": float("nan")}, "finite"),
        ("adascale_a", {"epsilon": float("inf")}, "finite"),
        ("adascale_a", {"seed": 1.5}, "whole"),
        ("react", {"logit_score": "luck"}, "energy, mls, msp, gen"),
        ("knn", {"k": 0}, "at least 1"),
        ("adascale_a", {"statistic": "z"}, "q_prime, q, c_o"),
        ("adascale_a", {"pixels": "z"}, "trivial, random"),
        ("scale", {"percentile": 850}, "percentage"),
        ("ebo", {"temperature": 0}, "above 0"),
    ],
)
def test_bad_parameters_are_named(name: str, parameters: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        detectors.get(name)(**parameters)


def test_a_parameter_assigned_later_is_checked_too() -> None:
    detector = detectors.AdaSCALE_A()
    detector.p_min = 99  # in between it may not fit together: p_max could follow
    with pytest.raises(InputError, match="above p_max"):
        detector.fit(*example_outputs(20, detector.views))


def test_unknown_methods_are_answered_with_the_list() -> None:
    with pytest.raises(InputError, match="adascale_a, adascale_l, scale"):
        detectors.get("magic")


def test_what_is_missing_is_said() -> None:
    outputs, head = example_outputs(20, ())
    with pytest.raises(InputError, match="needs the view trivial"):
        detectors.AdaSCALE_A().fit(outputs, head)
    with pytest.raises(InputError, match="got none"):
        detectors.AdaSCALE_A().fit(None, head)
    with pytest.raises(NotFittedError, match="call fit first"):
        detectors.MSP().score(outputs)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(("adascale_a", {"statistic": statistic}) for statistic in ("q_prime", "q", "c_o", "top", "q_top")),
        ("adascale_a", {"k2": 80}),
        ("adascale_l", {}),
        ("adascale_l", {"logit_score": "gen"}),
        ("scale", {"relu": True}),
        ("lts", {}),
        ("ebo", {}),
    ],
)
def test_a_sample_alone_scores_as_in_its_batch(name: str, given: dict[str, Any], signed: bool) -> None:
    """The path for one sample computes what the path for many does; outputs may still hang on a graph."""
    generator = torch.Generator().manual_seed(0)
    head = Head(torch.randn(6, 40, generator=generator), torch.randn(6, generator=generator))
    features = torch.randn(30, 40, generator=generator)
    features = features if signed else features.clamp_min(0)
    features[4] = 0
    moved = (features + 0.2 * torch.randn(30, 40, generator=generator)).requires_grad_()
    outputs = Outputs(head(features).float(), features, {View(): moved})
    method = detectors.get(name)(**given).fit(outputs, head)
    alone = torch.cat([method.score(outputs[i : i + 1]) for i in range(30)])
    assert torch.allclose(alone, method.score(outputs), rtol=1e-13, atol=0)


def test_outputs_of_any_precision_and_heads_that_want_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(40, 6)
    head = Head(layer.weight, layer.bias)
    features = torch.randn(30, 40, generator=generator).clamp_min(0).bfloat16()
    outputs = Outputs(layer(features.float()).bfloat16(), features, {View(): (features.float() + 1).bfloat16()})
    method = detectors.AdaSCALE_A().fit(outputs, head)
    assert outputs.features.dtype == torch.float32
    assert method.score(outputs[:1]).isfinite().all()
    assert method.ratios(outputs[:0]).shape == method.score(outputs[:0]).shape == (0,)


def test_pixels_that_are_no_word_are_refused() -> None:
    with pytest.raises(InputError, match="pixels"):
        detectors.AdaSCALE_A(pixels=["trivial"])


def test_diagnostics_are_declared_and_empty_by_default() -> None:
    outputs, head = example_outputs(30, (View(), View("random")))
    for cls in detectors.ALL:
        if cls.name not in (
            *("odin", "iodin", "mds", "rmds", "mahalanobis_pp", "gmm", "knn", "nnguide", "line", "she", "vim"),
            "mds_odin",
            "residual",
            "openmax",
            *INSIDE,
        ):
            assert tuple(cls().fit(outputs, head).diagnostics(outputs)) == cls.diagnosed
    assert {cls.name for cls in detectors.ALL if cls.diagnosed} == {"combined", "adascale_a", "adascale_l"}


def test_diagnostics_of_adascale_by_hand() -> None:
    a, ae = torch.tensor([[3.0, 5.0, 1.0, -2.0]]), torch.tensor([[2.5, 6.0, -1.0, 7.0]])
    outputs, head = Outputs(torch.zeros(1, 2), a, {View(): ae}), Head(torch.zeros(2, 4))
    found = detectors.AdaSCALE_A(k1=50, k2=75, p_min=50, p_max=75).fit(outputs, head).diagnostics(outputs)
    assert {name: values.tolist() for name, values in found.items()} == {
        "q": [1.5],
        "c_o": [8.5],
        "q_prime": [10 * 1.5 + 8.5],
        "share": [1],  # the only reference sample is at most as large as itself
        "percentile": [50],
        "ratio": [9 / 8],
        "energy": [pytest.approx(math.log(2))],
        "scaled_energy": [pytest.approx(math.log(2))],
        "shift_by_rank": [[1, 0.5, 2, 9]],
        "perturbed_by_rank": [[6, 2.5, -1, 7]],
    }
    assert detectors.AdaSCALE_A().diagnostics(Outputs(outputs.logits, outputs.features)) == {}
