"""How a network is run changes the time, not the answer, and leaves no trace."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adascale import Classifier, DetectorFileError, InputError, OODDetector, View
from adascale.extraction.extract import extract_batch
from adascale.network.running import at_once, held, likes_channels_last
from tests.conftest import SmallNet, images, needs_precision, seeded


class Flattens(SmallNet):
    """Looks at its activations in a way that channels_last does not allow."""

    def features(self, x: Tensor) -> Tensor:
        a = torch.relu(self.conv(x))
        return super().features(x) + 0 * a.view(len(x), -1)[:, :1]


class Guarded(SmallNet):
    """Code around the head that must see it return: a flag, and a net under exceptions."""

    busy = False

    def forward(self, x: Tensor) -> Any:
        assert not self.busy
        self.busy = True
        try:
            return self.fc(self.features(x))
        except Exception as error:
            raise ValueError("forward failed") from error
        finally:
            self.busy = False


class Cascade(SmallNet):
    """Calls its head again for a larger batch."""

    def forward(self, x: Tensor) -> Any:
        features = self.features(x)
        return self.fc(features) if len(x) <= 2 else self.fc(features + 0 * self.fc(features * 0).sum())


class Strided(SmallNet):
    """Reads its activations by their place in memory."""

    def features(self, x: Tensor) -> Tensor:
        a = torch.relu(self.conv(x))
        first = a.as_strided((len(x), 16), (a.stride(0), 1))
        return super().features(x) + first.mean(1, keepdim=True)


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
    with pytest.raises(InputError, match="does not take channels_last=True: view size"):
        outputs(Classifier(model, channels_last=True))


@pytest.mark.parametrize("pixels", ["trivial", "random"])
def test_pieces_give_what_the_whole_batch_gives(pixels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = seeded(SmallNet)
    whole = outputs(Classifier(model), pixels, 7)
    monkeypatch.setattr("adascale.network.classifier.at_once", lambda *_: 3)
    for a, b in zip(outputs(Classifier(model), pixels, 7), whole, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_small_images_go_in_larger_pieces() -> None:
    assert at_once(torch.zeros(100, 3, 224, 224), SmallNet()) == 16
    assert at_once(torch.zeros(100, 3, 32, 32), SmallNet()) == 42


def test_the_perturbed_pass_does_not_compute_the_head() -> None:
    model: Any = seeded(SmallNet)
    classifier, calls = Classifier(model).locate(images()), list[int]()
    computed = model.fc.forward

    def counted(x: Tensor) -> Tensor:
        calls.append(len(x))
        return computed(x)  # type: ignore[no-any-return]

    model.fc.forward = counted
    extract_batch(classifier, images(), [View("trivial"), View("salient")])
    assert calls == [6]
    assert model.fc.forward is counted


def test_a_small_last_piece_does_not_hide_a_second_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 3, 3 and 2 images: the last calls the head once, the others twice."""
    monkeypatch.setattr("adascale.network.classifier.at_once", lambda *_: 3)
    classifier = Classifier(seeded(Cascade)).locate(images())
    features, _ = classifier.forward(images(8))
    assert torch.equal(classifier.features(images(8)), features)


@pytest.mark.parametrize("kind", [Guarded, Cascade, Strided])
def test_networks_with_a_mind_of_their_own(kind: type[SmallNet]) -> None:
    """The pass that stops at the head gives the features of the whole pass."""
    classifier = Classifier(seeded(kind)).locate(images())
    whole, _ = classifier.forward(images())
    assert torch.equal(classifier.features(images()), whole)


@pytest.mark.filterwarnings("ignore:.*other images beside it:adascale.AdascaleWarning")
def test_images_that_share_statistics_stay_together() -> None:
    model: Any = seeded(SmallNet)
    model.norm = nn.BatchNorm2d(model.norm.num_features, track_running_stats=False)
    many = images(40, size=64)
    assert torch.allclose(extract_batch(Classifier(model.eval()), many).logits, model(many), rtol=1e-4, atol=1e-5)


def test_a_head_called_twice_is_read_at_its_last_call() -> None:
    model, plain = seeded(Twice), seeded(SmallNet)
    for a, b in zip(outputs(Classifier(model)), outputs(Classifier(plain)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_reduced_precision_stays_close_and_is_float32_again(precision: Any) -> None:
    needs_precision(precision)
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
    needs_precision("bf16")
    model = seeded(SmallNet)
    made = [Classifier(model), Classifier(model, precision="bf16"), Classifier(model, compiled=True)]
    assert len({classifier.code() for classifier in made}) == 3


class Graphs:
    """A backend that counts what it is given to compile, and how often it runs."""

    def __init__(self) -> None:
        self.made = self.run = 0

    def __call__(self, graph: Any, _: Any) -> Any:
        self.made += 1

        def call(*args: Any) -> Any:
            self.run += 1
            return graph(*args)

        return call


@pytest.mark.usefixtures("unguarded")
@pytest.mark.filterwarnings("ignore::UserWarning")  # the compiler's own
@pytest.mark.parametrize("pixels", ["trivial", "random"])
def test_compiled_parts_run_compiled_and_are_taken_off_again(pixels: str) -> None:
    model, graphs = seeded(SmallNet), Graphs()
    classifier = Classifier(model, compiled=graphs)
    found = outputs(classifier, pixels)
    assert graphs.made >= 2  # conv and norm, not the head
    assert graphs.run >= (4 if pixels == "trivial" else 2)  # both in every pass; random pixels share one
    for a, b in zip(found, outputs(Classifier(model), pixels), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)
    assert not any("_compiled_call_impl" in vars(module) for module in model.modules())


@pytest.mark.usefixtures("unguarded")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_copy_of_a_compiled_classifier_has_its_own_weights() -> None:
    classifier = Classifier(seeded(SmallNet), compiled="eager")
    outputs(classifier)
    other: Any = copy.deepcopy(classifier)
    with torch.no_grad():
        other.model.conv.weight.zero_()
    zeroed = outputs(other)
    for a, b in zip(zeroed, outputs(Classifier(other.model)), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_detector_runs_in_the_precision_it_was_fitted_in(tmp_path: Path) -> None:
    needs_precision("bf16", "fp16")
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


def test_locating_waits_for_a_running_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second thread that locates the head changes nothing before it holds the network."""
    classifier, waits = Classifier(seeded(SmallNet)).locate(images()), threading.Event()

    @contextmanager
    def announced(model: nn.Module) -> Iterator[None]:
        waits.set()
        with held(model):
            yield

    with classifier.ready():
        monkeypatch.setattr("adascale.network.classifier.held", announced)
        other = threading.Thread(target=classifier.locate, args=(images(),))
        other.start()
        assert waits.wait(60)
        assert classifier.prepare(images()).is_contiguous(memory_format=torch.channels_last)
    other.join()
    assert classifier.prepare(images()).is_contiguous(memory_format=torch.channels_last)
