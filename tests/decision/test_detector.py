"""`OODDetector`: three lines from a network to a verdict, and files that are refused when they should be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from adascale import (
    AdascaleWarning,
    Classifier,
    DetectorFileError,
    InputError,
    NotFittedError,
    OODDetector,
    Preprocess,
    Verdict,
    detectors,
)
from adascale.detectors.mls import MLS
from tests.conftest import SmallNet, StagedNet, images, seeded
from tests.inside import INSIDE


@pytest.fixture
def fitted(net: nn.Module) -> OODDetector:
    return OODDetector(net).fit(images(60))


def same(a: Verdict, b: Verdict) -> bool:
    return torch.equal(a.score, b.score) and torch.equal(a.p_value, b.p_value) and torch.equal(a.is_ood, b.is_ood)


def test_a_verdict_in_three_lines(net: nn.Module) -> None:
    detector = OODDetector(net).fit(images(60))
    verdict = detector(images(5, seed=1))
    with torch.no_grad():
        logits = net(images(5, seed=1))
    assert torch.allclose(verdict.logits, logits, atol=1e-6)
    assert torch.equal(verdict.prediction, logits.argmax(1))
    assert torch.equal(verdict.is_ood, verdict.score > detector.threshold)
    assert torch.equal(verdict.is_ood, verdict.p_value <= 0.05)
    assert verdict.score.dtype == verdict.p_value.dtype == torch.float64
    assert torch.equal(detector.score(images(5, seed=1)), verdict.score)
    assert repr(verdict) == f"Verdict({int(verdict.is_ood.sum())} of 5 out-of-distribution)"


def balanced(kind: type[nn.Module] = SmallNet) -> nn.Module:
    """A network that predicts every class now and then."""
    model: Any = seeded(kind)
    with torch.no_grad():
        model.fc.bias -= model(images(200, seed=9)).mean(0)
    return model  # type: ignore[no-any-return]


@pytest.mark.parametrize("cls", detectors.ALL, ids=lambda cls: cls.name)
def test_every_method_by_name_and_back_from_disk(cls: type[detectors.Detector], tmp_path: Path) -> None:
    kind = StagedNet if cls.name in INSIDE else SmallNet
    net, train, val = balanced(kind), images(200, seed=9), images(60)
    with torch.no_grad():
        labels, known = net(train).argmax(1), net(val).argmax(1)
    assert len(set(labels.tolist())) == 5
    detector = OODDetector(net, cls.name).fit((val, known), train=(train, labels))
    detector.save(tmp_path / "d.safetensors")
    loaded = OODDetector.load(tmp_path / "d.safetensors", balanced(kind))
    mine, theirs = detector(images(5, seed=1)), loaded(images(5, seed=1))
    # A tensor from disk lies elsewhere in memory, and a matrix product may then round its last bit differently.
    assert torch.allclose(mine.score, theirs.score, rtol=1e-12)
    assert torch.equal(mine.is_ood, theirs.is_ood)
    assert (loaded.method, loaded.threshold) == (detector.method, detector.threshold)


def test_parameters_reach_the_method(net: nn.Module) -> None:
    detector = OODDetector(net, "adascale_a", p_max=90, pixels="random", seed=7)
    assert detector.method == detectors.AdaSCALE_A(p_max=90, pixels="random", seed=7)
    assert OODDetector(net, p_max=90).method == detectors.get("combined")(p_max=90)
    assert OODDetector(net, detectors.LTS(70)).method == detectors.LTS(70)
    with pytest.raises(InputError, match=r"no parameter 'p_mx'; did you mean 'p_max'\? It has: epsilon, fraction"):
        OODDetector(net, "adascale_a", p_mx=90)
    with pytest.raises(InputError, match="set them on it"):
        OODDetector(net, detectors.LTS(), percentile=70)


def test_what_is_fitted_on_does_not_set_the_threshold(net: nn.Module) -> None:
    detector = OODDetector(net).fit(images(60))
    assert detector.calibration is not None
    assert (detector.reference_images, len(detector.calibration.scores)) == (12, 48)
    fixed = OODDetector(net, "scale").fit(images(60))  # learns nothing: every image calibrates
    assert fixed.calibration is not None
    assert (fixed.reference_images, len(fixed.calibration.scores)) == (0, 60)


def test_few_images_say_plainly_what_holds(net: nn.Module) -> None:
    with pytest.warns(AdascaleWarning, match=r"At most 16\.7 % .* 19 calibration images\. Give fit at least 29 images"):
        detector = OODDetector(net).fit(images(10))
    assert detector.threshold < float("inf")
    assert torch.equal(detector(images(9, seed=2)).is_ood, detector(images(9, seed=2)).p_value <= 1 / 6)


def test_alpha_moves_the_threshold(net: nn.Module) -> None:
    strict, loose = (OODDetector(net, alpha=alpha).fit(images(120)) for alpha in (0.02, 0.3))
    assert strict.threshold > loose.threshold


def test_streams_and_batches_agree(fitted: OODDetector) -> None:
    x = images(40, seed=3)
    pieces = list(fitted.stream([x[:7], x[7:]]))
    assert [len(piece) for piece in pieces] == [7, 33]
    assert torch.allclose(torch.cat([piece.score for piece in pieces]), fitted(x).score, rtol=1e-5)


def test_one_image_alone(fitted: OODDetector) -> None:
    one = images(1, seed=4)
    assert len(fitted(one[0])) == 1
    assert torch.equal(fitted(one[0]).score, fitted(one).score)


def test_broken_activations_are_flagged(fitted: OODDetector) -> None:
    x = images(2)
    x[0] = float("nan")
    verdict = fitted(x)
    assert verdict.is_ood[0]
    assert verdict.score[0] == float("inf")
    assert verdict.score[1].isfinite()


def test_misuse_is_answered_in_one_line(fitted: OODDetector, net: nn.Module) -> None:
    cases: list[tuple[type[Exception], Any, str]] = [
        (NotFittedError, lambda: OODDetector(net)(images(2)), r"call fit\(id_images\) first"),
        (InputError, lambda: OODDetector(net).fit([]), "no images"),
        (InputError, lambda: OODDetector(net).fit(images(1)), "one to learn from and one to calibrate"),
        (InputError, lambda: OODDetector(net, "scale", alpha=5), "above 0 and below 1"),
        (InputError, lambda: fitted(images(2, size=20)), r"calibrated on \(3, 16, 16\)"),
        (InputError, lambda: fitted([]), "no images to judge"),
    ]
    for error, call, words in cases:
        with pytest.raises(error, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_changed_method_must_be_fitted_again(fitted: OODDetector) -> None:
    fitted.method.p_max = 99
    with pytest.raises(NotFittedError):
        fitted(images(2))


def test_the_file_says_what_it_is(fitted: OODDetector, tmp_path: Path) -> None:
    fitted.preprocess = Preprocess(size=20, crop=16, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2))
    fitted.save(tmp_path / "d.safetensors", model="net.py:make")
    with safe_open(tmp_path / "d.safetensors", framework="pt") as file:  # any safetensors reader can
        record = json.loads(file.metadata()["adascale"])["record"]
    assert record["method"] == "combined"
    assert record["parameters"]["p_max"] == 61.6  # 128 features
    assert record["parameters"]["members"] == ["adascale_l", "fdbd", "gen", "vim"]
    assert record["calibration"]["images"] == 48
    assert record["head"]["name"] == "fc"
    assert record["input"] == {
        "shape": [3, 16, 16],
        "preprocess": {
            "size": 20,
            "crop": 16,
            "mean": [0.5, 0.4, 0.3],
            "std": [0.2, 0.2, 0.2],
            "interpolation": "bilinear",
            "draft": False,
        },
    }
    assert record["about"] == {"model": "net.py:make"}
    assert OODDetector.load(tmp_path / "d.safetensors", seeded(SmallNet)).preprocess == fitted.preprocess


class OtherNet(SmallNet):
    """The same weights and layers, another function."""

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x))).amax((2, 3))


def changed(weight: str) -> nn.Module:
    model = seeded(SmallNet)
    with torch.no_grad():
        model.get_parameter(weight).view(-1)[0].add_(1e-3)
    return model


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: seeded(lambda: SmallNet(classes=6)), "other layers, weights"),
        (lambda: changed("fc.bias"), "other layers, weights"),
        (lambda: changed("conv.weight"), "other layers, weights"),
        (lambda: seeded(SmallNet).half(), "precision"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 5)), "no such layer"),
        (lambda: seeded(OtherNet), "computes something else"),
    ],
)
def test_another_network_is_refused(fitted: OODDetector, tmp_path: Path, model: Any, words: str) -> None:
    fitted.save(tmp_path / "d.safetensors")
    with pytest.raises(DetectorFileError, match=words):
        OODDetector.load(tmp_path / "d.safetensors", model())


def test_a_damaged_or_foreign_file_is_refused(fitted: OODDetector, tmp_path: Path, net: nn.Module) -> None:
    good = tmp_path / "d.safetensors"
    fitted.save(good)
    content = good.read_bytes()
    bad = tmp_path / "bad.safetensors"
    for at in (3, 40, len(content) // 2, len(content) - 3):  # length, metadata, anywhere, last tensor
        bad.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(DetectorFileError):
            OODDetector.load(bad, net)
    for cut in (b"", content[:5], content[:-1], b"hello, I am a text file"):
        bad.write_bytes(cut)
        with pytest.raises(DetectorFileError, match="damaged"):
            OODDetector.load(bad, net)
    torch.save({"a": torch.zeros(2)}, bad)
    with pytest.raises(DetectorFileError, match="not a safetensors file"):
        OODDetector.load(bad, net)
    save_file({"a": torch.zeros(2)}, bad)
    with pytest.raises(DetectorFileError, match="not a detector saved by adascale"):
        OODDetector.load(bad, net)
    with pytest.raises(DetectorFileError, match="There is no detector file"):
        OODDetector.load(tmp_path / "none.safetensors", net)


def test_a_method_object_is_not_shared(net: nn.Module) -> None:
    method = detectors.AdaSCALE_A()
    first = OODDetector(net, method).fit(images(60))
    before = first(images(3, seed=1))
    OODDetector(seeded(SmallNet, seed=1), method).fit(images(60) * 3)
    assert same(first(images(3, seed=1)), before)


def test_broken_calibration_images_are_not_passed_over(net: nn.Module) -> None:
    some, many = images(120), images(120)
    some[50:53], many[20:] = float("nan"), float("nan")
    with pytest.warns(AdascaleWarning, match="NaN or infinite activations; they count as out-of-distribution"):
        detector = OODDetector(net, "scale").fit(some)
    assert detector.threshold < float("inf")
    with pytest.raises(InputError, match="no threshold can be set"):
        OODDetector(net, "scale").fit(many)
    some[:2] = float("nan")  # the head is found on the images that can be used
    with pytest.warns(AdascaleWarning, match="5 calibration images"):
        OODDetector(net, "scale").fit(some)


def test_alpha_can_be_changed_later_and_is_saved(net: nn.Module, tmp_path: Path) -> None:
    detector = OODDetector(net).fit(images(120))
    before = detector.threshold
    detector.alpha = 0.3
    assert detector.threshold < before
    detector.save(tmp_path / "d.safetensors")
    assert OODDetector.load(tmp_path / "d.safetensors", net).threshold == detector.threshold
    with pytest.raises(InputError):
        detector.alpha = 7


def test_fitting_again_sees_weights_that_changed_meanwhile(net: nn.Module) -> None:
    detector = OODDetector(net).fit(images(60))
    with torch.no_grad():
        net.get_parameter("fc.weight").mul_(2)
    again = detector.fit(images(60)).score(images(4, seed=1))
    assert torch.equal(again, OODDetector(net).fit(images(60)).score(images(4, seed=1)))


@dataclass
class Mine(MLS):
    name = "mine"


def test_a_method_of_ones_own_is_saved_and_loaded(net: nn.Module, tmp_path: Path) -> None:
    detector = OODDetector(net, Mine()).fit(images(60))
    record = detector.save(tmp_path / "d.safetensors")
    assert record["origin"] == {"module": __name__, "class": "Mine", "package": None, "version": None}
    for method in (Mine, None):  # the file says which class it is, and its module is loaded
        loaded = OODDetector.load(tmp_path / "d.safetensors", net, method=method)
        assert type(loaded.method) is Mine
        assert same(loaded(images(3)), detector(images(3)))
    assert "origin" not in OODDetector(net, "mls").fit(images(60)).save(tmp_path / "mls.safetensors")


def test_a_method_that_is_not_there_is_named(net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mine, "__module__", "their_package.methods")
    OODDetector(net, Mine()).fit(images(60)).save(tmp_path / "d.safetensors")
    with pytest.raises(DetectorFileError, match=r"Mine of their_package\.methods.*load\(\.\.\., method=\)"):
        OODDetector.load(tmp_path / "d.safetensors", net)


def test_several_detectors_share_a_classifier(net: nn.Module) -> None:
    classifier = Classifier(net)
    first, second = OODDetector(classifier).fit(images(60)), OODDetector(classifier, "ebo").fit(images(60))
    assert first.classifier is second.classifier
    assert len(first(images(2))) == len(second(images(2))) == 2


def test_odin_takes_the_std_of_the_preprocessing(net: nn.Module) -> None:
    preprocess = Preprocess(size=16, crop=16, mean=(0.5,) * 3, std=(0.1, 0.2, 0.3))
    assert OODDetector(net, "odin", preprocess=preprocess).method == detectors.ODIN(std=(0.1, 0.2, 0.3))
    with pytest.raises(InputError, match="images with 3 channels"):
        OODDetector(net, "odin", std=(0.1, 0.2)).fit(images(30))


def test_a_loaded_method_has_the_parameters_that_were_saved(net: nn.Module, tmp_path: Path) -> None:
    detector = OODDetector(net, "odin", preprocess=Preprocess(size=16, crop=16, mean=(0.5,) * 3, std=(0.2,) * 3))
    detector.method = detectors.ODIN(eta=0.1)  # without the std of the preprocessing
    detector.fit(images(60)).save(tmp_path / "d.safetensors")
    loaded = OODDetector.load(tmp_path / "d.safetensors", net)
    assert loaded.method.parameters == detector.method.parameters
    assert same(loaded(images(5, seed=1)), detector(images(5, seed=1)))


def test_saving_is_atomic(fitted: OODDetector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "d.safetensors"
    fitted.save(target)
    before = target.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        fitted.save(target)
    assert [path.name for path in tmp_path.iterdir()] == ["d.safetensors"]
    assert target.read_bytes() == before
