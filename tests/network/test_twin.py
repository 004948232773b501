"""Passes run on a private twin of the network: nobody sees them, and it never falls behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adascale import Classifier, InputError, OODDetector, View
from adascale.extraction.extract import extract_batch
from adascale.network.running import at_once
from adascale.network.twin import Twin
from tests.conftest import SmallNet, images, seeded


class Reuses(SmallNet):
    """Uses the convolution's result beside the norm."""

    def features(self, x: Tensor) -> Tensor:
        a = self.conv(x)
        return torch.relu(self.norm(a) + 0.1 * a).mean((2, 3))


class Branches(SmallNet):
    """Decides by the values of its activations."""

    def features(self, x: Tensor) -> Tensor:
        a = self.conv(x)
        b = torch.relu(self.norm(a)).mean((2, 3))
        return b + a.mean((2, 3)) if float(x.detach().max()) > 100 else b


class Closure(SmallNet):
    """A function that was made with the network, and knows this one alone."""

    def __init__(self) -> None:
        super().__init__()
        self.act: Callable[[Tensor], Tensor] = lambda a: torch.relu(self.norm(a))

    def features(self, x: Tensor) -> Tensor:
        return self.act(self.conv(x)).mean((2, 3))


class Listed(SmallNet):
    """Keeps its parts in a list and in a bound method, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.last, self.seen = [self.conv, self.norm], self.activated, list[int]()

    def activated(self, a: Tensor) -> Tensor:
        return torch.relu(self.steps[1](a))

    def features(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        return self.last(self.steps[0](x)).mean((2, 3))


def busy(model: nn.Module) -> nn.Module:
    """With statistics and weights that a wrong fold would show."""
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        generator = torch.Generator().manual_seed(3)
        for tensor in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
            assert tensor is not None
            tensor.data = 0.5 + torch.rand(tensor.shape, generator=generator)
    return model


def twin_of(classifier: Classifier) -> Twin:
    assert classifier._twin is not None
    return classifier._twin


def is_folded(classifier: Classifier) -> bool:
    return twin_of(classifier)._folded is not None


def close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).abs().max() <= 2e-6 * expected.abs().max())


def same_as_the_network(classifier: Classifier, model: Any) -> bool:
    features, logits = classifier.forward(images())
    with torch.no_grad():
        return close(features, model.features(images())) and close(logits, model(images()))


@pytest.mark.parametrize(
    ("kind", "folded"), [(SmallNet, True), (Listed, True), (Reuses, False), (Branches, False), (Closure, False)]
)
def test_norms_are_folded_where_that_changes_nothing(kind: type[SmallNet], folded: bool) -> None:
    model = busy(seeded(kind)).eval()
    classifier = Classifier(model).locate(images())
    assert is_folded(classifier) == folded
    assert (twin_of(classifier).module is None) == (kind is Closure)
    assert same_as_the_network(classifier, model)
    _, _, gradients = classifier.forward_with_gradients(images())
    leaf = images().requires_grad_()
    (expected,) = torch.autograd.grad(model(leaf).max(1).values.sum(), leaf)
    assert close(gradients[0], expected)


def test_a_fold_that_is_not_exact_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adascale.network.twin.FOLDING_SLACK", 0.0)
    model = busy(seeded(SmallNet)).eval()
    classifier = Classifier(model).locate(images())
    assert not is_folded(classifier)
    twin: Any = twin_of(classifier).module
    assert torch.equal(twin.conv.weight, model.conv.weight)  # type: ignore[arg-type, union-attr]
    assert same_as_the_network(classifier, model)


def _replaced(model: Any) -> None:
    model.conv.weight = nn.Parameter(2 * model.conv.weight.detach())


def _loaded(model: Any) -> None:
    model.load_state_dict({name: 1.5 * value for name, value in model.state_dict().items()})


def _in_place(model: Any) -> None:
    with torch.no_grad():
        model.norm.running_var.mul_(3)


def _through_data(model: Any) -> None:
    model.conv.weight.data.mul_(3)


def _another_layer(model: Any) -> None:
    model.norm = nn.BatchNorm2d(model.norm.num_features, eps=0.5).eval()


def _setting(model: Any) -> None:
    model.norm.eps = 0.7


def _forward(model: Any) -> None:
    model.norm.forward = lambda a: a - 1


def _hook(model: Any) -> None:
    model.conv.register_forward_hook(lambda _, __, result: 2 * result)


CHANGES = [_replaced, _loaded, _in_place, _through_data, _another_layer, _setting, _forward, _hook, nn.Module.double]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_network_is_noticed(change: Callable[[Any], Any]) -> None:
    model: Any = busy(seeded(SmallNet)).eval()
    classifier = Classifier(model).locate(images())
    before, _ = classifier.forward(images())
    assert is_folded(classifier)
    change(model)
    with torch.no_grad():
        expected = model.features(images().to(model.fc.weight.dtype))
    found, _ = classifier.forward(images())
    assert close(found, expected)
    if change is not nn.Module.double:
        assert not close(found, before)


def test_an_unchanged_network_keeps_its_twin() -> None:
    model: Any = busy(seeded(SmallNet))
    classifier = Classifier(model).locate(images())
    twin = twin_of(classifier)
    model.train()
    classifier.forward(images())
    model.eval()(images()).sum().backward()
    classifier.forward(images())
    assert twin_of(classifier) is twin


def test_what_a_network_counts_is_counted() -> None:
    """Objects that are no modules and no tensors are those of the network."""
    model: Any = seeded(Listed)
    classifier = Classifier(model).locate(images())
    model.seen.clear()
    classifier.forward(images(5))
    assert model.seen == [5]


@pytest.mark.parametrize("pixels", ["random", "trivial"])
def test_within_inference_mode(pixels: Any) -> None:
    model = busy(seeded(SmallNet))
    with torch.inference_mode():
        inside = extract_batch(Classifier(model), images(), [View(pixels)])
    outside = extract_batch(Classifier(model), images(), [View(pixels)])
    assert torch.equal(inside.views[View(pixels)], outside.views[View(pixels)])


def test_other_threads_see_the_network_as_it_is() -> None:
    """2,000 plain calls beside the passes of a detector: the same answers of both each time, flags that never move."""
    model: Any = busy(seeded(SmallNet)).eval()
    few = images(2)
    with torch.no_grad():
        expected = model(few)
    model.fc.train()  # flags that a pass would have to change; the result does not depend on them
    detector = OODDetector(model, "adascale_a", p_min=80, p_max=85).fit(images(32))
    scores, stop, errors = detector.score(few), threading.Event(), list[object]()

    def detect() -> None:
        try:
            while not stop.is_set():
                if not torch.equal(detector.score(few), scores):
                    errors.append("another score")
        except Exception as error:
            errors.append(error)

    other = threading.Thread(target=detect)
    other.start()
    try:
        wrong = flags = 0
        for _ in range(2000):
            with torch.no_grad():
                wrong += not torch.equal(model(few), expected)
            flags += not model.fc.training or not all(parameter.requires_grad for parameter in model.parameters())
    finally:
        stop.set()
        other.join()
    assert (wrong, flags, errors) == (0, 0, [])


def test_a_copy_keeps_its_weights() -> None:
    model: Any = busy(seeded(SmallNet)).eval()
    copied, shared = (Classifier(model, copy=copy).locate(images()) for copy in (True, False))
    before, _ = copied.forward(images())
    with torch.no_grad():
        model.conv.weight.mul_(2)
    assert torch.equal(copied.forward(images())[0], before)
    assert not torch.equal(shared.forward(images())[0], before)


def test_a_network_that_cannot_be_copied() -> None:
    model: Any = seeded(SmallNet)
    model.lock = threading.Lock()
    with pytest.raises(InputError, match="copy=True: SmallNet cannot be copied"):
        Classifier(model, copy=True)
    assert twin_of(Classifier(model).locate(images())).module is not None  # the twin shares it


def test_pieces_follow_the_largest_activation() -> None:
    many = torch.zeros(32, 3, 224, 224)
    assert at_once(many, SmallNet(), 64 * 112 * 112 / many[0].numel()) == 5  # ResNet-50: 7 pieces of 5 or fewer
    assert at_once(many[:16], SmallNet(), 64 * 112 * 112 / many[0].numel()) == 4  # pieces of one size
    assert at_once(many, SmallNet(), 1000) == 1
    assert at_once(many[:3], SmallNet(), 0.1) == 3
