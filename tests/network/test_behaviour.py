"""Networks that cannot be used, networks whose answers change, weights that change, and processes that fork."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adascale import AdascaleWarning, Classifier, HeadNotFoundError, InputError, NotFittedError, OODDetector
from adascale.network.trained import registered
from adascale.network.weights import read_weights
from tests.conftest import SmallNet, seeded

IMAGES = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(5))


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return SmallNet()


@pytest.mark.parametrize(("make", "reason"), [(lazy, "lazy layer"), (on_meta, "meta device")])
def test_a_network_without_values_is_refused_in_one_line(make: Any, reason: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own about lazy layers
        model = make()
    with pytest.raises(InputError, match=reason):
        OODDetector(model)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_head_in_torchscript_is_not_found() -> None:
    model: Any = seeded(SmallNet).eval()
    model.fc = torch.jit.script(model.fc)
    with pytest.raises(HeadNotFoundError):
        OODDetector(model, "msp").fit(IMAGES)


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = seeded(SmallNet)
        self.calls = 0


class Random(Around):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x + 0.5 * torch.randn_like(x))
        return out


class Stateful(Around):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.inner(x * self.calls)
        return out


class OfTheBatch(Around):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(3 * (x - x.mean(0)))
        return out


@pytest.mark.parametrize(
    ("kind", "told"), [(Random, "random numbers"), (Stateful, "keeps a state"), (OfTheBatch, "statistics of the batch")]
)
def test_answers_that_do_not_depend_on_the_image_alone_are_told(kind: type[nn.Module], told: str) -> None:
    with pytest.warns(AdascaleWarning, match=told):
        Classifier(kind()).locate(IMAGES)


def test_a_steady_network_says_nothing() -> None:
    Classifier(seeded(SmallNet)).locate(IMAGES)  # warnings are errors here


def test_a_parametrised_head_in_training_mode_stays_as_it_is() -> None:
    model: Any = seeded(SmallNet)
    nn.utils.parametrizations.spectral_norm(model.fc)
    model.train()
    before = copy.deepcopy(model.state_dict())
    detector = OODDetector(model, "msp").fit(IMAGES)
    detector(IMAGES[:4])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


class TestChangedWeights:
    """A detector is calibrated for the weights of its fit."""

    def test_a_change_is_refused(self, tmp_path: Path) -> None:
        model: Any = seeded(SmallNet)
        detector = OODDetector(model, "msp").fit(IMAGES)
        detector(IMAGES[:4])
        with torch.no_grad():
            model.conv.weight.mul_(1.5)
        for use in (
            lambda: detector(IMAGES[:4]),
            lambda: detector.is_ood(IMAGES[:4]),
            lambda: detector.save(tmp_path / "d.safetensors"),
        ):
            with pytest.raises(NotFittedError, match="weights of the network have changed"):
                use()
        assert len(detector.fit(IMAGES)(IMAGES[:4])) == 4

    @pytest.mark.parametrize("how", ["copied", "one tensor", "a row", "other memory", "another layer"])
    def test_a_change_that_torch_does_not_count_is_refused(self, how: str) -> None:
        model: Any = seeded(SmallNet)
        detector = OODDetector(model, "msp").fit(IMAGES)
        detector(IMAGES[:4])
        if how == "copied":
            for tensor in model.parameters():
                tensor.data.copy_(torch.rand_like(tensor))
        elif how == "one tensor":
            model.fc.weight.data.mul_(1.01)
        elif how == "a row":
            model.fc.weight.data[-1] = 0.5
        elif how == "other memory":
            model.fc.weight.data = torch.rand_like(model.fc.weight)
        else:
            model.fc = nn.Linear(model.fc.in_features, model.fc.out_features)
        with pytest.raises(NotFittedError, match="weights of the network have changed"):
            detector(IMAGES[:4])

    def test_equal_weights_elsewhere_are_the_same(self) -> None:
        model: Any = seeded(SmallNet)
        detector = OODDetector(model, "msp").fit(IMAGES)
        before = detector(IMAGES[:4]).score
        model.fc.weight.data = model.fc.weight.data.clone()
        assert torch.equal(detector(IMAGES[:4]).score, before)
        model.fc.weight.data[0] = 0.0
        with pytest.raises(NotFittedError, match="have changed"):
            detector(IMAGES[:4])

    def test_a_copy_does_not_change(self) -> None:
        model: Any = seeded(SmallNet)
        detector = OODDetector(Classifier(model, copy=True), "msp").fit(IMAGES)
        before = detector(IMAGES[:4]).score
        with torch.no_grad():
            model.conv.weight.mul_(1.5)
        assert torch.equal(detector(IMAGES[:4]).score, before)

    def test_copies_of_a_detector_can_be_used(self) -> None:
        detector = OODDetector(seeded(SmallNet), "msp").fit(IMAGES)
        with torch.no_grad():
            next(detector.classifier.model.parameters()).add_(0)
        detector.fit(IMAGES)
        for other in (copy.deepcopy(detector), pickle.loads(pickle.dumps(detector))):
            assert torch.equal(other(IMAGES[:4]).score, detector(IMAGES[:4]).score)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads, which is what is tested
def test_a_fork_while_a_thread_scores_does_not_hang_the_child() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Waiting(Around):
        def forward(self, x: Tensor) -> Tensor:
            if threading.current_thread() is thread:
                entered.set()
                go_on.wait(60)
            out: Tensor = self.inner(x)
            return out

    thread = threading.Thread(target=lambda: detector(IMAGES[:4]))
    detector = OODDetector(Waiting(), "adascale_a").fit(IMAGES)
    expected = detector(IMAGES[:4]).score
    thread.start()
    assert entered.wait(60)
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(detector(IMAGES[:4]).score, expected) else 1)
    deadline, status = time.monotonic() + 60, None
    while status is None and time.monotonic() < deadline:
        done, code = os.waitpid(child, os.WNOHANG)
        status = code if done else None
        time.sleep(0.02)
    go_on.set()
    thread.join(60)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert status == 0


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "[" * 100_000, '{"format": "adascale-networks", "format_version": 1, "networks": []}'],
    ids=["empty", "list", "null", "nested", "none"],
)
def test_a_list_of_networks_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "networks.json").write_text(text)
    with pytest.raises(InputError, match="is no list of networks written by adascale train"):
        registered(tmp_path)
    with pytest.raises((ValueError, RecursionError, TypeError, KeyError, IndexError)):
        json.loads(text)["networks"][0]


@pytest.mark.parametrize("place", [30, 200, -60])
def test_a_damaged_weights_file_is_told_in_one_line(place: int, tmp_path: Path) -> None:
    torch.save({"a": torch.rand(3)}, tmp_path / "w.pth")
    data = bytearray((tmp_path / "w.pth").read_bytes())
    data[place : place + 8] = b"\xff" * 8
    data[data.rindex(b"PK\x01\x02")] ^= 1  # the directory of the archive
    (tmp_path / "w.pth").write_bytes(data)
    with pytest.raises(InputError, match="it is damaged, or no weights file"):
        read_weights(tmp_path / "w.pth")
