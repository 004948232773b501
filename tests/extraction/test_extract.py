"""From whatever users hold to `Outputs`: passes are counted, samples do not influence each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from adascale import Classifier, InputError, Outputs, View, detectors, extract, extract_batch
from adascale.core.types import Centres, Need
from adascale.extraction.batches import batches
from adascale.extraction.perturb import perturb
from tests.conftest import SmallNet, images, seeded

VIEWS = [View(), View("salient"), View("all"), View("random")]


class Counter:
    """Counts the forward passes and the images in them, and the backward passes that reach the input."""

    def __init__(self, model: nn.Module) -> None:
        self.forwards: list[int] = []
        self.backwards = 0
        model.register_forward_pre_hook(self.start)
        model.register_forward_hook(self.end)

    def start(self, _: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.forwards.append(len(args[0]))

    def end(self, _: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(self.backward)  # type: ignore[no-untyped-call]

    def backward(self, _: Tensor) -> None:
        self.backwards += 1


def counted(views: Sequence[Need], n: int = 4) -> Counter:
    model = seeded(SmallNet)
    classifier = Classifier(model).locate(images(2))
    counter = Counter(model)
    extract_batch(classifier, images(n), views)
    return counter


def test_passes_are_exactly_those_the_views_need() -> None:
    assert (counted([]).forwards, counted([]).backwards) == ([4], 0)
    assert (counted([View()]).forwards, counted([View()]).backwards) == ([4, 4], 1)
    assert (counted([View(), View()]).forwards, counted([View(), View()]).backwards) == ([4, 4], 1)
    assert (counted(VIEWS).forwards, counted(VIEWS).backwards) == ([4] * 5, 1)


def test_random_views_share_one_batch_without_any_gradient() -> None:
    counter = counted([View("random"), View("random", step=1.0)])
    assert (counter.forwards, counter.backwards) == ([12], 0)


def test_all_methods_cost_one_extraction() -> None:
    of_input = [(cls.name, view) for cls in detectors.ALL for view in cls().views if not view.network]
    counter = counted([view for name, view in of_input if "odin" not in name])
    assert (counter.forwards, counter.backwards) == ([4, 4, 4], 1)  # clean; trivial pixels; random ones, for combined
    with_odin = counted([view for _, view in of_input])
    # One more gradient, that of the cross-entropy, and a pass each for ODIN and I-ODIN.
    assert (with_odin.forwards, with_odin.backwards) == ([4, 4, 4, 4, 4], 2)


def test_a_view_that_was_learned_costs_a_backward_and_a_forward_pass() -> None:
    learned = View("all", step=-0.01, towards=Centres(torch.zeros(128), torch.eye(128), torch.rand(3, 128)))
    alone, beside = counted([learned]), counted([*VIEWS, View("all", temperature=2.0), learned])
    assert alone.forwards == [4, 4]
    assert (beside.forwards, beside.backwards) == ([4] * 7, 2)  # of the logits; its own comes from the features


def test_inner_layers_cost_no_pass_and_a_changed_network_one() -> None:
    """All taps of all methods in the clean pass, with one backward for each objective; layers are found once, on two
    images.
    """
    taps = [tap for cls in detectors.ALL for tap in cls().taps if tap.layers != "activations"]  # it has norms alone
    assert {tap.reduce for tap in taps} >= {"mean", "gram", "attribution", "gradient_share", "gradient_mean"}
    with_taps = counted([View(), *taps])
    # Backward through the head: from the largest logit, to the input and the layers at once, and from the divergence.
    assert (with_taps.forwards, with_taps.backwards) == ([2, 4, 4], 2)
    plain = counted([tap for tap in taps if not tap.needs_gradient])
    assert (plain.forwards, plain.backwards) == ([2, 4], 0)
    assert counted([View(network="rank_one"), View("random")]).forwards == [8, 2, 4]


def test_values_are_those_of_the_network() -> None:
    model: Any = seeded(SmallNet)
    x = images()
    outputs = extract_batch(Classifier(model), x, VIEWS)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf).max(1).values.sum(), leaf)
    with torch.no_grad():
        assert torch.allclose(outputs.features, model.features(x), atol=1e-6)
        assert torch.allclose(outputs.logits, model(x), atol=1e-6)
        for view in VIEWS:
            expected = model.features(perturb(x, gradient, view))
            assert torch.allclose(outputs.views[view], expected, atol=1e-5), view


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_a_sample_does_not_depend_on_its_batch_or_position(view: View) -> None:
    classifier = Classifier(seeded(SmallNet), "fc")
    x = images(9)
    whole = extract_batch(classifier, x, [view])
    single = Outputs.cat([extract_batch(classifier, x[i : i + 1], [view]) for i in range(9)])
    reverse = extract_batch(classifier, x.flip(0), [view])[torch.arange(8, -1, -1)]
    for other in (single, reverse, extract_batch(classifier, x, [view])):
        assert torch.allclose(other.features, whole.features, atol=1e-6)
        assert torch.allclose(other.views[view], whole.views[view], atol=1e-5)


def test_random_views_are_the_same_beside_gradient_views() -> None:
    classifier = Classifier(seeded(SmallNet), "fc")
    alone = extract_batch(classifier, images(), [View("random")]).views[View("random")]
    beside = extract_batch(classifier, images(), VIEWS).views[View("random")]
    assert torch.allclose(alone, beside, atol=1e-6)


def sources() -> dict[str, Any]:
    x, y = images(5), torch.tensor([3, 1, 4, 1, 0])

    def stream() -> Iterator[Tensor]:
        yield from x.split(2)  # type: ignore[no-untyped-call]

    return {
        "tensor": x,
        "array": x.numpy(),
        "pair": (x, y),
        "generator": stream(),
        "list of batches": [x[:3], x[3:]],
        "dicts": [{"pixel_values": x[:3], "labels": y[:3]}, {"pixel_values": x[3:], "labels": y[3:]}],
        "loader": DataLoader(TensorDataset(x, y), batch_size=2),
        "single images": list(x),
        "tuple of images": tuple(x),
        "tuple of batches": (x[:2], x[2:4], x[4:]),
        "two batches": (x[:3], x[3:]),
        "with an empty batch": [x[:0], x[:3], x[3:]],
        "one label for all": [(x[:3], 7), {"image": x[3:], "label": 7}],
        "data set": TensorDataset(x, y),
        "names beside": [(x[:3], ["a", "b", "c"]), (x[3:], ["d", "e"])],
    }


@pytest.mark.parametrize("kind", list(sources()))
def test_sources(kind: str) -> None:
    parts = list(batches(sources()[kind], batch_size=2))
    assert torch.equal(torch.cat([part for part, _ in parts]), images(5))
    assert max(len(part) for part, _ in parts) <= 3
    if kind in ("pair", "dicts", "loader", "data set"):
        assert torch.cat([labels for _, labels in parts if labels is not None]).tolist() == [3, 1, 4, 1, 0]
    else:
        assert all(labels is None for _, labels in parts)


def test_labels_travel_with_the_outputs() -> None:
    outputs = Outputs.cat(list(extract(Classifier(seeded(SmallNet)), sources()["loader"])))
    assert outputs.labels is not None
    assert outputs.labels.tolist() == [3, 1, 4, 1, 0]
    assert outputs[torch.tensor([4, 0])].labels.tolist() == [0, 3]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (42, "came as int"),
        (torch.zeros(3, 3), r"shape \(3, 3\)"),
        ([{"picture": torch.zeros(1, 3, 4, 4)}], "pixel_values"),
        (["a.jpg"], "came as str"),
        ([torch.zeros(3, 4, 4), torch.zeros(3, 5, 5)], "differ in shape"),
        (np.zeros((2, 2)), r"shape \(2, 2\)"),
    ],
)
def test_bad_sources_are_named(source: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        list(batches(source))


def test_outputs_that_do_not_fit_together() -> None:
    with pytest.raises(InputError, match="same N"):
        Outputs(torch.zeros(2, 3), torch.zeros(3, 3))
    with pytest.raises(InputError, match="that of the features"):
        Outputs(torch.zeros(2, 3), torch.zeros(2, 4), {View(): torch.zeros(2, 5)})
    with pytest.raises(InputError, match="one class index"):
        Outputs(torch.zeros(2, 3), torch.zeros(2, 4), labels=torch.zeros(3, dtype=torch.int64))
