"""The adapter: finds the head of odd networks, and leaves no trace."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from adascale import Classifier, HeadNotFoundError, InputError, View, extract_batch
from adascale.core.precisions import PRECISIONS
from tests.conftest import SmallNet, images, needs_precision, seeded


class Named(NamedTuple):
    """As of networks that return the logits of a second head beside their own."""

    aux_logits: Tensor
    logits: Tensor


class Variant(SmallNet):
    """The small network with something odd at the end."""

    def __init__(self, form: str) -> None:
        super().__init__(bias=form != "no bias")
        self.form = form
        self.conv_head = nn.Conv2d(128, 5, 1)
        self.other = nn.Linear(128, 5)

    def forward(self, x: Tensor) -> Any:
        a = self.features(x)
        match self.form:
            case "tuple":
                return self.fc(a), a
            case "dict":
                return {"embedding": a, "logits": self.fc(a)}
            case "nested":
                return {"outputs": [self.fc(a)]}
            case "named tuple":
                return Named(self.other(a), self.fc(a))
            case "object":
                return type("Result", (), {"logits": self.fc(a)})()
            case "softmax":
                return self.fc(a).softmax(1)
            case "log_softmax":
                return self.fc(a).log_softmax(1)
            case "conv":
                return self.conv_head(a[:, :, None, None]).flatten(1)
            case "keyword":
                return self.fc(input=a)
            case "token":
                return self.fc(a[:, None])[:, 0]
            case "float":
                return self.fc(a).float()
            case "writes":
                x.mul_(0)
                return self.fc(a)
            case "writes after":
                return self.fc(a).mul_(3)
            case "two outputs":
                return self.other(a), self.fc(a)
            case "functional":
                return nn.functional.linear(a, self.fc.weight, self.fc.bias)
            case "nothing useful":
                return [None, {"a": None}, "text", object()]
            case "two heads":
                return (self.fc(a) + self.other(a)) / 2
            case "scaled":
                return self.fc(a) * 3
            case "cosine":
                return nn.functional.normalize(a) @ nn.functional.normalize(self.fc.weight).T
            case "no grad":
                with torch.no_grad():
                    return self.fc(a)
        return self.fc(a)


FOUND = {
    **dict.fromkeys(
        ["plain", "no bias", "tuple", "dict", "nested", "object", "softmax", "log_softmax", "keyword", "token"], "fc"
    ),
    "float": "fc",
    "named tuple": "fc",
    "writes": "fc",
    "conv": "conv_head",
}


def variant(form: str) -> nn.Module:
    return seeded(lambda: Variant(form))


@pytest.mark.filterwarnings("ignore:.* ends in a :adascale.AdascaleWarning")
@pytest.mark.parametrize(("form", "head"), FOUND.items())
def test_the_head_is_found_and_proven(form: str, head: str) -> None:
    model: Any = variant(form)
    classifier = Classifier(model).locate(images())
    features, logits = classifier.forward(images())
    assert classifier.head_name == head
    assert torch.allclose(classifier.head(features), logits.double(), atol=1e-5)
    assert torch.allclose(features, model.features(images()), atol=1e-6)


@pytest.mark.parametrize(
    "form", ["two heads", "scaled", "cosine", "two outputs", "functional", "writes after", "nothing useful"]
)
def test_where_no_head_exists_the_error_lists_candidates(form: str) -> None:
    with pytest.raises(HeadNotFoundError, match=r"head='\.\.\.'"):
        Classifier(variant(form)).locate(images())


def test_a_named_head_overrides_and_gives_its_own_logits() -> None:
    model = variant("scaled")
    _, logits = Classifier(model, "fc").locate(images()).forward(images())
    assert torch.allclose(3 * logits, model(images()), atol=1e-5)


def test_a_named_head_is_proven_before_it_is_used() -> None:
    class Cosine(SmallNet):
        def __init__(self) -> None:
            super().__init__()
            self.fc = Normalised(128, 5)

    class Normalised(nn.Linear):
        def forward(self, a: Tensor) -> Tensor:
            return nn.functional.normalize(a) @ nn.functional.normalize(self.weight).T

    with pytest.raises(HeadNotFoundError, match="does not compute W a"):
        extract_batch(Classifier(seeded(Cosine), "fc"), images())
    outputs = extract_batch(Classifier(variant("writes after"), "fc"), images())
    head = Classifier(variant("writes after"), "fc").head
    assert torch.allclose(head(outputs.features).float(), outputs.logits, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.* ends in a :adascale.AdascaleWarning")
@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_softmax_in_half_precision(name: str) -> None:
    needs_precision(name)
    assert Classifier(variant("softmax").to(PRECISIONS[name])).locate(images()).head_name == "fc"


@pytest.mark.usefixtures("unguarded")
def test_torchscript_is_refused_in_words() -> None:
    with pytest.warns(DeprecationWarning, match="jit"), pytest.raises(InputError, match="TorchScript"):
        Classifier(torch.jit.trace(variant("plain"), images(1)))  # type: ignore[no-untyped-call]


class Lazy(SmallNet):
    """Keeps a tensor from its first pass."""

    mask: Tensor | None = None

    def features(self, x: Tensor) -> Tensor:
        a = super().features(x)
        if self.mask is None:
            self.mask = torch.linspace(0, 1, 128)
        return a * self.mask


@pytest.mark.parametrize("pixels", ["trivial", "random"])
@pytest.mark.parametrize("kind", ["lazy", "pruned", "weight norm"])
def test_training_goes_on_after_a_pass(kind: str, pixels: Any) -> None:
    model: Any = seeded(Lazy if kind == "lazy" else SmallNet)
    if kind == "pruned":
        prune.l1_unstructured(model.fc, "weight", 0.5)  # type: ignore[no-untyped-call]
    if kind == "weight norm":
        with pytest.warns(FutureWarning):
            nn.utils.weight_norm(model.fc)
    if kind != "lazy":
        model(images())
    extract_batch(Classifier(model), images(), [View(pixels)])
    if kind != "lazy":
        assert model.fc.weight.requires_grad
        model.fc.weight.square().sum().backward()
    model.train()(images()).sum().backward()
    assert model.conv.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(("name", "words"), [("nope", "no module"), ("conv", "not"), ("other", "was not called")])
def test_a_wrong_name_is_refused_with_candidates(name: str, words: str) -> None:
    with pytest.raises(HeadNotFoundError, match=words) as caught:
        Classifier(variant("plain"), name).locate(images())
    assert "'fc' (Linear, 128 -> 5)" in str(caught.value)


def test_a_network_without_any_linear_layer() -> None:
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean((2, 3))

    with pytest.raises(HeadNotFoundError, match="no linear layer at all"):
        Classifier(Mean()).locate(images())


def test_not_a_network() -> None:
    with pytest.raises(InputError, match=r"torch\.nn\.Module"):
        Classifier(lambda x: x)  # type: ignore[arg-type]


def test_nan_logits_are_named() -> None:
    model = variant("plain")
    with torch.no_grad():
        model.conv.weight.fill_(float("nan"))  # type: ignore[union-attr, operator]
    with pytest.raises(InputError, match="not finite"):
        Classifier(model).locate(images())


def test_integer_images_are_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="normalised floats"):
        Classifier(variant("plain")).locate(torch.zeros(1, 3, 16, 16, dtype=torch.uint8))


def test_blocked_gradients_are_named() -> None:
    with pytest.raises(InputError, match="pixels='random'"):
        extract_batch(Classifier(variant("no grad")), images(), [View()])


def same(a: Any, b: Any) -> bool:
    return all(
        torch.allclose(x, y, rtol=1e-4, atol=1e-5)
        for x, y in zip(
            (a.features, a.logits, *a.views.values()), (b.features, b.logits, *b.views.values()), strict=True
        )
    )


@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize("wrap", ["data parallel", "compiled", "compiled in place", "compiled inside"])
def test_wrapped_networks_give_the_same(wrap: str) -> None:
    plain = extract_batch(Classifier(seeded(SmallNet)), images(), [View()])
    model: Any = seeded(SmallNet)
    if wrap == "data parallel":
        model = nn.DataParallel(model)
    elif wrap == "compiled":
        model = torch.compile(model, backend="eager")
    elif wrap == "compiled in place":
        model.compile(backend="eager")
    else:
        model.conv = torch.compile(model.conv, backend="eager")
    assert same(extract_batch(Classifier(model), images(), [View()]), plain)


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp64"])
def test_other_precisions(name: str) -> None:
    needs_precision(*{name} & {*PRECISIONS})
    model = seeded(SmallNet).to(PRECISIONS.get(name, torch.float64))
    outputs = extract_batch(Classifier(model), images(), [View()])
    exact = extract_batch(Classifier(seeded(SmallNet)), images(), [View()])
    assert outputs.features.dtype in (torch.float32, torch.float64)
    assert torch.allclose(outputs.features.float(), exact.features, rtol=0.05, atol=0.02)


def snapshot(model: nn.Module) -> list[Any]:
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()]
    flags = [m.training for m in model.modules()]
    grads = [(p.requires_grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()]
    values = {name: value.clone() for name, value in model.state_dict().items()}
    return [hooks, flags, grads, values]


def equal(a: list[Any], b: list[Any]) -> bool:
    grads = all(x[0] == y[0] and (x[1] is y[1] or torch.equal(x[1], y[1])) for x, y in zip(a[2], b[2], strict=True))
    return a[:2] == b[:2] and grads and all(torch.equal(a[3][name], b[3][name]) for name in a[3])


def mixed_state() -> SmallNet:
    """Partly training, partly frozen, with a gradient and a hook of the user's own."""
    model: Any = seeded(SmallNet).train()
    model.norm.eval()
    model.conv.weight.requires_grad_(False)
    model.fc.weight.grad = torch.ones_like(model.fc.weight)
    model.fc.register_forward_hook(lambda *_: None)
    return model  # type: ignore[no-any-return]


@pytest.mark.parametrize("surroundings", ["plain", "no_grad", "inference_mode"])
@pytest.mark.parametrize("pixels", ["trivial", "random"])
def test_the_network_is_left_as_it_was(pixels: Any, surroundings: str) -> None:
    model = mixed_state()
    before = snapshot(model)
    around = {"plain": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
    with around[surroundings]():
        outputs = extract_batch(Classifier(model), images(), [View(pixels)])
    assert equal(before, snapshot(model))
    assert not outputs.features.is_inference()
    expected = extract_batch(Classifier(seeded(SmallNet)), images(), [View(pixels)])
    assert same(outputs, expected)  # evaluation mode was used all the same


class Fails(SmallNet):
    calls = 0
    fail_at: int

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        if self.calls >= self.fail_at:
            self.features(x)
            raise RuntimeError("half way")
        return super().forward(x)


@pytest.mark.parametrize("fail_at", [1, 2, 3])
def test_the_network_is_left_as_it_was_when_something_raises(fail_at: int) -> None:
    model: Any = seeded(Fails).train()
    model.fail_at = fail_at
    before = snapshot(model)
    with pytest.raises(RuntimeError, match="half way"):
        extract_batch(Classifier(model), images(), [View()])
    assert equal(before, snapshot(model))


def test_no_parameter_gradient_is_ever_computed() -> None:
    model = seeded(SmallNet)
    touched: list[str] = []
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda _, name=name: touched.append(name))  # type: ignore[no-untyped-call]
    extract_batch(Classifier(model), images(), [View()])
    assert touched == []
    assert all(parameter.grad is None for parameter in model.parameters())


def test_threads_sharing_a_network_do_not_mix() -> None:
    model = seeded(SmallNet)
    classifier = Classifier(model).locate(images())
    expected = [extract_batch(classifier, images(seed=s), [View()]) for s in range(4)]
    results: dict[int, Any] = {}

    def work(s: int) -> None:
        for _ in range(5):
            results[s] = extract_batch(Classifier(model, "fc"), images(seed=s), [View()])

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(results[s], expected[s]) for s in range(4))


def test_fingerprint_sees_every_weight_and_buffer() -> None:
    model: Any = seeded(SmallNet)
    first = Classifier(model).fingerprint()
    assert first == Classifier(seeded(SmallNet)).fingerprint()
    model.norm.running_mean[0] += 1e-6
    assert first != Classifier(model).fingerprint()
