"""Engines give what torch gives, or are refused in one line."""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adascale import Classifier, OODDetector, load_network
from adascale.core.engines import ENGINES
from adascale.core.errors import DetectorFileError, InputError, MissingExtraError
from adascale.decision.detector_file import DetectorFile
from adascale.extraction.extract import extract_batch
from adascale.network import engines
from tests.conftest import DATA, SmallNet, images, needs_data, seeded, worst_relative
from tests.export.nets import net_with
from tests.images.pictures import picture
from tests.shell import fit, inside, rows

pytestmark = pytest.mark.usefixtures("unguarded")


def missing(name: str) -> list[str]:
    return [package for package in ENGINES[name][1] if importlib.util.find_spec(package) is None]


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(missing(name)), reason=f"{', '.join(missing(name))} not installed")


OTHERS = [pytest.param(name, marks=needs(name)) for name in ENGINES if name != "torch"]
needs_onnxruntime = needs("onnxruntime")


@pytest.fixture(scope="module", params=OTHERS)
def classifier(request: pytest.FixtureRequest) -> Classifier:
    """A small network that runs in an engine. Tests share it, because an export takes seconds."""
    return Classifier(seeded(SmallNet), engine=request.param).locate(images())


@pytest.fixture
def in_torch() -> Classifier:
    return Classifier(seeded(SmallNet)).locate(images())


@pytest.mark.parametrize("method", ["adascale_l", "combined", "ebo"])
def test_scores_verdicts_and_early_decisions_are_those_of_torch(
    classifier: Classifier, in_torch: Classifier, method: str
) -> None:
    settings: dict[str, Any] = {} if method == "ebo" else {"pixels": "random", "p_min": 70, "p_max": 85}
    known, new = images(80), torch.cat([images(40, seed=1), 2 * images(40, seed=2)])
    ours, usual = (
        OODDetector(network, method, alpha=0.2, **settings).fit(known, tune=False) for network in (classifier, in_torch)
    )
    found, expected = ours(new), usual(new)
    assert worst_relative(found.score, expected.score) < 1e-5
    assert torch.equal(found.p_value, expected.p_value)
    assert torch.equal(found.is_ood, expected.is_ood)
    assert 0 < int(found.is_ood.sum()) < len(new)
    decided, wanted = ours.decide(new), usual.decide(new)
    assert torch.equal(decided.is_ood, expected.is_ood)
    assert torch.equal(decided.early, wanted.early)


def test_the_network_is_not_run_by_torch_again(classifier: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier.forward(images())
    monkeypatch.setattr(SmallNet, "forward", lambda *_: pytest.fail("torch ran the network"))
    assert classifier.forward(images(70, seed=1))[0].shape == (70, 128)  # more than one piece
    assert classifier.features(images(1)).shape == (1, 128)


def test_gradients_and_all_that_goes_with_them_are_those_of_torch(classifier: Classifier) -> None:
    usual = Classifier(seeded(SmallNet), channels_last=False).locate(images())
    method = replace(OODDetector(usual, "adascale_a", p_min=80, p_max=85).method)
    found, expected = (extract_batch(network, images(), method.views) for network in (classifier, usual))
    assert torch.equal(found.features, expected.features)
    assert torch.equal(found.logits, expected.logits)
    assert all(torch.equal(found.views[view], expected.views[view]) for view in method.views)


def test_images_that_are_not_finite_give_nan(classifier: Classifier) -> None:
    given = images(5)
    given[1, 0, 3, 3], given[3, 2, 0, 0] = torch.nan, torch.inf
    for found in classifier.forward(given):
        assert found.isnan().all(1).tolist() == [False, True, False, True, False]
        assert found[[0, 2, 4]].isfinite().all()


def test_huge_images_are_not_taken_for_infinite_ones(classifier: Classifier, in_torch: Classifier) -> None:
    given = images(2)
    given[0].fill_(3e36)  # their sum overflows
    assert torch.equal(classifier.forward(given)[1].isnan(), in_torch.forward(given)[1].isnan())


def test_pixels_are_refused_as_ever(classifier: Classifier) -> None:
    with pytest.raises(InputError, match=r"The images are torch\.uint8; the network needs the normalised floats"):
        classifier.forward(images().byte())


def test_pickled_without_the_session(classifier: Classifier) -> None:
    expected = classifier.forward(images())[0]
    copy = pickle.loads(pickle.dumps(classifier))
    assert (copy.engine, copy._engines.name, copy._engines._sessions) == (classifier.engine, classifier.engine, {})
    if classifier.engine == "onnxruntime":  # a second export for one engine is enough
        assert torch.equal(copy.forward(images())[0], expected)


def test_another_size_makes_another_session(classifier: Classifier, in_torch: Classifier) -> None:
    for size in (16, 24, 16):
        found, expected = (network.forward(images(3, size=size))[0] for network in (classifier, in_torch))
        assert worst_relative(found, expected) < 1e-4
    assert {(3, 16, 16), (3, 24, 24)} == {*classifier._engines._sessions}  # type: ignore[union-attr]


@needs_onnxruntime
def test_changed_weights_are_noticed() -> None:
    net = seeded(SmallNet)
    changing, usual = Classifier(net, engine="onnxruntime").locate(images()), Classifier(net).locate(images())
    before = changing.forward(images())
    with torch.no_grad():
        net.get_parameter("conv.weight").mul_(1.5)
        net.get_parameter("fc.weight").add_(0.1)
    after = changing.forward(images())
    for old, found, expected in zip(before, after, usual.forward(images()), strict=True):
        assert worst_relative(found, expected) < 1e-4
        assert worst_relative(old, expected) > 1e-2


def _optimiser(net: nn.Module) -> None:
    for parameter in net.parameters():
        parameter.data.add_(0.01)


def _replaced(net: nn.Module) -> None:
    net.conv = nn.Conv2d(3, 128, 3, stride=2, padding=1)


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "no_grad": lambda net: torch.no_grad()(net.get_parameter("fc.bias").add_)(1.0),
    "data": _optimiser,
    "replaced": _replaced,
    "loaded": lambda net: net.load_state_dict(seeded(SmallNet, 1).state_dict()),
    "a buffer": lambda net: net.get_buffer("norm.running_var").mul_(2),
    "converted": lambda net: net.to(torch.float64),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_counts_as_a_change(change: str) -> None:
    net = seeded(SmallNet)
    weights = engines._Weights(net)
    with Classifier(net)._borrowed(), torch.inference_mode():
        net(images())
    assert not weights.changed(net)
    CHANGES[change](net)
    assert weights.changed(net)


def _made_up(_: Path, __: int) -> engines.Run:
    usual = Classifier(seeded(SmallNet)).locate(images())

    def run(given: Any) -> Any:
        features, logits = usual.forward(torch.from_numpy(given))
        return features.numpy(), logits.numpy() * np.float32(1.001)

    return run


@needs_onnxruntime
def test_a_forked_process_makes_its_own_session(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Classifier(seeded(SmallNet), engine="onnxruntime").locate(images())
    processes: list[int] = []

    def made(*_: Any) -> engines.Run:
        processes.append(os.getpid())
        return lambda given: tuple(one.numpy() for one in network.in_torch(torch.from_numpy(given)))  # type: ignore[return-value]

    monkeypatch.setattr(engines, "_made", made)
    for process in (1, 1, 2, 2):
        monkeypatch.setattr("adascale.network.engines.os.getpid", lambda process=process: process)
        network.forward(images())
    assert processes == [1, 2]


@needs_onnxruntime
def test_an_engine_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "export", lambda *_: None)
    monkeypatch.setitem(engines._RUNTIMES, "onnxruntime", _made_up)
    with pytest.raises(InputError, match=r"'onnxruntime' and torch disagree about the logits of SmallNet by more than"):
        Classifier(seeded(SmallNet), engine="onnxruntime").locate(images()).forward(images())


class Branching(SmallNet):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x if x.mean() > 0 else -x)


@needs_onnxruntime
def test_the_proof_passes_over_an_image_that_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Classifier(seeded(SmallNet), engine="onnxruntime").locate(images())
    asked: list[Tensor] = []

    def run(given: Any) -> Any:
        asked.append(torch.from_numpy(given))
        return tuple(one.numpy() for one in network.in_torch(asked[-1]))

    monkeypatch.setattr(engines, "_made", lambda *_: run)
    network.forward(torch.full((1, 3, 16, 16), 3e38))
    assert [len(given) for given in asked] == [4, 1]
    assert not network.in_torch(asked[0])[1].isfinite().all()


@needs_onnxruntime
def test_a_network_that_cannot_be_exported_is_refused_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        InputError, match=r"^Branching cannot be given to engine='onnxruntime' \(.*'torch'\.$"
    ) as caught:
        Classifier(seeded(Branching), engine="onnxruntime").locate(images()).forward(images())
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@needs_onnxruntime
def test_a_network_that_asks_for_the_number_of_images() -> None:
    network, given = net_with("transformer"), images(5, size=12)
    plain, fast = (Classifier(network, engine=name).locate(given).forward(given) for name in ("torch", "onnxruntime"))
    assert worst_relative(fast[0], plain[0]) < 1e-5


@needs_onnxruntime
def test_a_network_that_treats_large_batches_otherwise_is_refused() -> None:
    class Sized(SmallNet):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x if x.shape[0] < 64 else -x)

    with pytest.raises(InputError, match="Sized cannot be given to engine='onnxruntime'"):
        Classifier(seeded(Sized), engine="onnxruntime").locate(images()).forward(images())


def test_an_unknown_engine() -> None:
    with pytest.raises(InputError, match="engine='openvin' is none of torch, onnxruntime, openvino; did you mean"):
        OODDetector(seeded(SmallNet), engine="openvin")


@pytest.mark.parametrize(("package", "name", "extra"), [("onnxscript", "onnxruntime", "export"), ("openvino",) * 3])
def test_a_missing_package(package: str, name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs {package} .* pip install 'adascale\[{extra}\]'"):
        Classifier(seeded(SmallNet), engine=name)


@needs_onnxruntime
def test_what_only_torch_can_do() -> None:
    elsewhere = patch.object(Classifier, "device", torch.device("meta"))
    with elsewhere, pytest.raises(InputError, match=r"engine='onnxruntime' runs on the processor, the network on meta"):
        Classifier(SmallNet(), engine="onnxruntime")
    with pytest.raises(InputError, match=r"engine='onnxruntime' and compiled=True"):
        Classifier(SmallNet(), compiled=True, engine="onnxruntime")
    with pytest.raises(InputError, match="the Classifier that was given has engine='torch'"):
        OODDetector(Classifier(SmallNet()), engine="onnxruntime")
    with pytest.raises(InputError, match=r"runs in float64; only float32 can be"):
        Classifier(seeded(SmallNet).double(), engine="onnxruntime").locate(images()).forward(images())


def test_a_detector_file_and_its_engines(classifier: Classifier, in_torch: Classifier, tmp_path: Path) -> None:
    """Fitted with one and used with another, if the probe agrees: more closely than between machines."""
    new, known = images(20, seed=3), images(40)
    for fitted, used in ((classifier, in_torch), (in_torch, classifier)):
        detector = OODDetector(fitted, "adascale_l", pixels="random", p_min=70, p_max=85).fit(known, tune=False)
        record = detector.save(tmp_path / "d.safetensors")
        assert record["network"].get("engine", "torch") == fitted.engine
        loaded = OODDetector.load(tmp_path / "d.safetensors", used)
        assert worst_relative(loaded.score(new), detector.score(new)) < 1e-5
    file = DetectorFile.read(tmp_path / "d.safetensors")
    other = replace(file, tensors={**file.tensors, "probe.features": file.tensors["probe.features"] * 1.005})
    OODDetector.load(other, in_torch)
    with pytest.raises(DetectorFileError, match=f"computes something else with engine='{classifier.engine}'"):
        OODDetector.load(other, classifier)


@pytest.mark.parametrize("name", OTHERS)
def test_the_command_line_gives_the_rows_of_torch(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = fit(place, monkeypatch, "--no-tune", "--set", "p_min=70", "--set", "p_max=85")
    (place / "new").mkdir()
    for i in range(12):  # a calibration image would tie with itself in torch, and by rounding not in an engine
        picture(seed=100 + i).save(place / "new" / f"{i:02d}.png")
    for engine in ("torch", name):
        out = place / f"{engine}.csv"
        assert inside(monkeypatch, "score", place / "new", "-d", detector, "--engine", engine, "-o", out) == 0
    found, expected = rows(place / f"{name}.csv"), rows(place / "torch.csv")
    assert len(found) == 12
    for row, usual in zip(found, expected, strict=True):
        assert float(row.pop("score")) == pytest.approx(float(usual.pop("score")), rel=1e-5)
        assert row == usual


def test_the_command_line_says_what_is_missing(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    code = inside(monkeypatch, "score", place / "id", "-d", place / "id", "--engine", "openvino")
    assert code == 2
    assert "This needs openvino (it is not installed); install it with: pip install" in capsys.readouterr().err


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_a_real_network(name: str) -> None:
    model, _ = load_network(f"{DATA}/networks.py:cifar10_resnet20")
    with np.load(DATA / "cifar" / "cifar10_test.npz") as file:
        pixels = torch.from_numpy(file["images"][:300]).movedim(-1, 1).float()
    inputs = (pixels / 255 - 0.47) / 0.25
    usual = OODDetector(model, alpha=0.1).fit(inputs[:200], tune=False)
    ours = OODDetector(model, alpha=0.1, engine=name).fit(inputs[:200], tune=False)
    found, expected = ours(inputs[200:]), usual(inputs[200:])
    assert worst_relative(found.score, expected.score) < 1e-4
    assert torch.equal(found.is_ood, expected.is_ood)
    assert torch.equal(ours.is_ood(inputs[200:]), expected.is_ood)
