"""How a network is run changes the time, not the answer, and leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adascale import Classifier, DetectorFileError, InputError, OODDetector, View
from adascale.extract import extract_batch
from adascale.passes import at_once, likes_channels_last
from tests.conftest import SmallNet, images, seeded


class Flattens(SmallNet):
    """Looks at its activations in a way that channels_last does not allow."""

    def features(self, x: Tensor) -> Tensor:
        a = torch.relu(self.conv(x))
        return super().features(x) + 0 * a.view(len(x), -1)[:, :1]


class Counts(SmallNet):
    """Counts what is computed after the head."""

    after = 0

    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        self.after += 1
        return logits


class Twice(SmallNet):
    """Calls its head for a first guess, and again for the answer."""

    def forward(self, x: Tensor) -> Any:
        features = self.features(x)
        self.fc(features * 0)
        return self.fc(features)


def outputs(classifier: Classifier, pixels: Any = "trivial", n: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    view = View(pixels)
    found = extract_batch(classifier, images(n), [view])
    return found.features, found.logits, found.views[view]


def test_channels_last_is_for_convolutional_networks() -> None:
    assert likes_channels_last(SmallNet())
    assert not likes_channels_last(nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))


@pytest.mark.parametrize("pixels", ["trivial", "random"])
@pytest.mark.parametrize("channels_last", [None, True, False])
def test_the_layout_changes_nothing_but_rounding(pixels: str, channels_last: bool | None) -> None:
    model = seeded(SmallNet)
    classifier = Classifier(model, channels_last=channels_last)
    strides: list[tuple[int, ...]] = []
    conv: nn.Module = model.conv  # type: ignore[assignment]
    with conv.register_forward_pre_hook(lambda _, args: strides.append(args[0].stride())):
        found = outputs(classifier, pixels)
    assert (strides[-1][1] == 1) == (channels_last is not False)
    for a, b in zip(found, outputs(Classifier(model, channels_last=False), pixels), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_network_that_cannot_take_channels_last_gets_its_own_layout() -> None:
    model = seeded(Flattens)
    found = outputs(Classifier(model))
    for a, b in zip(found, outputs(Classifier(model, channels_last=False)), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="view"):
        outputs(Classifier(model, channels_last=True))


@pytest.mark.parametrize("pixels", ["trivial", "random"])
def test_pieces_give_what_the_whole_batch_gives(pixels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = seeded(SmallNet)
    whole = outputs(Classifier(model), pixels, 7)
    monkeypatch.setattr("adascale.model.at_once", lambda _: 3)
    for a, b in zip(outputs(Classifier(model), pixels, 7), whole, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_small_images_go_in_larger_pieces() -> None:
    assert at_once(torch.zeros(100, 3, 224, 224)) == 16
    assert at_once(torch.zeros(100, 3, 32, 32)) == 42


def test_the_perturbed_pass_stops_at_the_head() -> None:
    model: Any = seeded(Counts)
    classifier = Classifier(model).locate(images())
    model.after = 0
    extract_batch(classifier, images(), [View("trivial"), View("salient")])
    assert model.after == 1


def test_a_head_called_twice_is_read_at_its_last_call() -> None:
    model, plain = seeded(Twice), seeded(SmallNet)
    for a, b in zip(outputs(Classifier(model)), outputs(Classifier(plain)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_reduced_precision_stays_close_and_is_float32_again(precision: Any) -> None:
    model = seeded(SmallNet)
    features, logits, _ = outputs(Classifier(model, precision=precision))
    exact, exact_logits, _ = outputs(Classifier(model))
    assert features.dtype == logits.dtype == torch.float32
    assert not torch.equal(features, exact)
    assert torch.allclose(features, exact, rtol=0.03, atol=0.03)
    assert torch.allclose(logits, exact_logits, rtol=0.05, atol=0.05)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InputError, match="precision='int3'"):
        Classifier(SmallNet(), precision="int3")


def test_how_it_runs_is_part_of_the_cache_key() -> None:
    model = seeded(SmallNet)
    made = [Classifier(model), Classifier(model, precision="bf16"), Classifier(model, compiled=True)]
    assert len({classifier.code() for classifier in made}) == 3


@pytest.mark.parametrize("pixels", ["trivial", "random"])
def test_compiled_parts_give_the_same_and_are_taken_off_again(pixels: str) -> None:
    model = seeded(SmallNet)
    classifier = Classifier(model, compiled="eager")
    found = outputs(classifier, pixels)
    for a, b in zip(found, outputs(Classifier(model), pixels), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)
    assert classifier._parts is not None
    assert len(classifier._parts._calls) == 2  # conv and norm, not the head
    assert not any("_compiled_call_impl" in vars(module) for module in model.modules())


def test_a_detector_runs_in_the_precision_it_was_fitted_in(tmp_path: Path) -> None:
    model, file = seeded(SmallNet), tmp_path / "detector.safetensors"
    fitted = OODDetector(Classifier(model, precision="bf16"), "ebo").fit(images(24))
    fitted.save(file)
    loaded = OODDetector.load(file, model)
    assert loaded.classifier.precision == "bf16"
    assert torch.equal(loaded.score(images(6)), fitted.score(images(6)))
    with pytest.raises(DetectorFileError, match="in bf16; this one runs in fp16"):
        OODDetector.load(file, Classifier(model, precision="fp16"))
    with pytest.raises(DetectorFileError, match="in bf16; this one runs in full precision"):
        OODDetector.load(file, Classifier(model).locate(images()))
