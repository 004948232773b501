"""Inner layers: which are found, what is read of them, and what a changed network gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adascale import Classifier, InputError, Tap, View, extract_batch
from adascale.core.taps import Found
from adascale.network.tapping import without_rank_one
from tests.conftest import StagedNet, seeded


class Tokens(nn.Module):
    """Four blocks of one size, as transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 8, 8)
        self.blocks = nn.Sequential(*(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(5)))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(x).flatten(2).transpose(1, 2)).mean(1))  # type: ignore[no-any-return]


def mlp() -> nn.Module:
    hidden = [nn.Flatten(), nn.Linear(3 * 32 * 32, 20), nn.ReLU(), nn.Linear(20, 10), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(10, 4))


def images(n: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def made(kind: Callable[[], nn.Module] = StagedNet) -> nn.Module:
    return seeded(kind).eval()


def by_hand(model: nn.Module, x: Tensor, names: list[str]) -> dict[str, Tensor]:
    """The results of these modules, and their gradient of the largest logit."""
    seen: dict[str, Tensor] = {}
    hooks = [
        model.get_submodule(name).register_forward_hook(lambda _, __, out, name=name: seen.update({name: out.clone()}))
        for name in names
    ]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(StagedNet, ["layer1", "layer2", "layer3"]), (Tokens, ["blocks.1", "blocks.3"]), (mlp, ["2", "4"])],
    ids=["stages", "blocks at even depths", "before the matrices of an MLP"],
)
def test_layers_are_found_and_reduced(kind: Callable[[], nn.Module], expected: list[str]) -> None:
    """The stem does not count; the means are those of the modules' results, and no hook is left."""
    model, x = made(kind), images()
    found = extract_batch(Classifier(model), x, [Tap()]).taps[Tap()]
    seen = by_hand(model, x, expected)
    assert len(found) == len(expected)
    for layer, name in zip(found, expected, strict=True):
        value = seen[name]
        mean = value.mean((2, 3)) if value.ndim == 4 else value.mean(1) if value.ndim == 3 else value
        torch.testing.assert_close(layer, mean, rtol=1e-4, atol=1e-5)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(("layer", "count"), [("layer1", 3), ("layer3", 100)], ids=["more positions", "more channels"])
def test_principal_components(layer: str, count: int) -> None:
    """The spread of the positions along each, by NumPy's covariance; what does not exist is 0."""
    model, x, tap = made(), images(), Tap((layer,), "principal", count=count)
    found = extract_batch(Classifier(model), x, [tap]).taps[tap][0]
    for row, value in zip(found, by_hand(model, x, [layer])[layer].double().numpy(), strict=True):
        covariance = np.cov(value.reshape(len(value), -1), bias=True)
        spread = np.sqrt(np.linalg.eigvalsh(covariance).clip(0))[::-1][:count]
        np.testing.assert_allclose(row[: len(spread)], spread, rtol=1e-3, atol=1e-5)
        assert not row[len(spread) :].any()
    assert str(tap) == f"tap/{layer}/principal/n={count}"


def test_an_image_that_is_not_finite_spoils_no_other() -> None:
    """A decomposition refuses NaN; the images beside it have their values, and it has none."""
    model, x = made(), images()
    x[1, 0, 3, 3], x[4] = torch.nan, torch.inf
    tap, view = Tap("stages", "principal", count=2), View(network="rank_one")
    found, fine = (extract_batch(Classifier(model), part, [tap, view]) for part in (x, x[[0, 2, 3, 5]]))
    for broken, layer in zip((*found.taps[tap], found.views[view]), (*fine.taps[tap], fine.views[view]), strict=True):
        assert broken[[1, 4]].isnan().any(1).all()
        torch.testing.assert_close(broken[[0, 2, 3, 5]], layer, rtol=1e-4, atol=1e-6)


def test_named_layers_and_refusals() -> None:
    classifier, x = Classifier(made()), images()
    tap = Tap(("layer1.norm", "layer2"), "minmax")
    first = extract_batch(classifier, x, [tap]).taps[tap][0]
    value = by_hand(classifier.model, x, ["layer1.norm"])["layer1.norm"].flatten(1)
    torch.testing.assert_close(first, torch.stack([-value.amin(1), value.amax(1)], 1), rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="layers: 'layer9' is no module of StagedNet; it has stem, pool, layer1"):
        extract_batch(classifier, x, [Tap(("layer9",))])
    with pytest.raises(InputError, match="Sequential has no norms that can be found; name modules"):
        extract_batch(Classifier(made(mlp)), x, [Tap("norms", "gradient_share")])
    with pytest.raises(InputError, match=r"engine='onnxruntime' gives features and logits alone.*use engine='torch'"):
        extract_batch(Classifier(made(), engine="onnxruntime"), x, [Tap()])
    assert Tap(["layer1"], "gram", [1, 2]) == Tap(("layer1",), "gram", (1, 2))  # type: ignore[arg-type]
    wrong: list[dict[str, Any]] = [{"layers": ()}, {"layers": "all"}, {"reduce": "median"}]
    wrong += [{"reduce": "gram"}, {"powers": (1,)}, {"reduce": "principal"}, {"count": 2}]
    for broken in wrong:
        with pytest.raises(InputError):
            Tap(**broken)


@pytest.mark.parametrize(
    ("reduce", "layers"), [("gradient_share", "norms"), ("gradient_mean", "norms"), ("attribution", "stages")]
)
def test_gradients_of_inner_layers(reduce: str, layers: Found) -> None:
    """Those of autograd in the plain network, although the modules after them write in place."""
    model, x = made(), images()
    tap = Tap(layers, reduce)  # type: ignore[arg-type]
    found = extract_batch(Classifier(model), x, [tap]).taps[tap]
    names = [f"layer{i}.norm" if layers == "norms" else f"layer{i}" for i in (1, 2, 3)]
    kept: list[Tensor] = []
    hooks = []
    for name in names:

        def keep(_: nn.Module, __: object, out: Tensor) -> Tensor:
            kept.append(out)
            return out.clone()

        hooks.append(model.get_submodule(name).register_forward_hook(keep))
    features: list[Tensor] = []
    hooks.append(model.fc.register_forward_pre_hook(lambda _, args: features.append(args[0])))  # type: ignore[union-attr]
    logits = model(x.requires_grad_())
    goal = {
        "gradient_share": logits.max(1).values.sum(),
        "gradient_mean": features[0].sum(),
        "attribution": -logits.log_softmax(1).mean(1).sum(),
    }[reduce]
    for layer, value, g in zip(found, kept, torch.autograd.grad(goal, kept), strict=True):
        if reduce == "attribution":
            expected = value.mean((2, 3)) * g.sum((2, 3))
        else:
            part = (g != 0).float().mean((2, 3)) if reduce == "gradient_share" else g.mean((2, 3))
            expected = torch.stack([part.square().sum(1), torch.full((len(x),), float(part.shape[1]))], 1)
        torch.testing.assert_close(layer, expected.detach(), rtol=1e-3, atol=1e-5)
    for hook in hooks:
        hook.remove()


def test_the_first_singular_component_is_taken_off() -> None:
    """As by an SVD, whichever side is shorter; and what follows is the rest of the network."""
    for shape in ((2, 5, 3, 4), (2, 20, 3, 2)):
        maps = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        u, s, v = np.linalg.svd(maps.double().numpy().reshape(*shape[:2], -1), full_matrices=False)
        rest = (u[:, :, 1:] * s[:, None, 1:]) @ v[:, 1:]
        np.testing.assert_allclose(without_rank_one(maps).numpy().reshape(rest.shape), rest, atol=1e-5)
    model, x, view = made(), images(), View(network="rank_one", stage=-1)
    found = extract_batch(Classifier(model), x, [view]).views[view]
    last = by_hand(model, x, ["layer3"])["layer3"]
    torch.testing.assert_close(found, without_rank_one(last).mean((2, 3)), rtol=1e-4, atol=1e-5)
    assert not Classifier(model).locate(x).cannot(View(network="rank_one", stage=-3))
    assert "fewer than 4 stages" in Classifier(model).locate(x).cannot(View(network="rank_one", stage=-4))


def test_dropout_is_drawn_once_for_all_images() -> None:
    """The features are the clean ones, some of them 0 and the others twice as large; the batch does not matter."""
    classifier, x = Classifier(made()), images()
    views = [View(network="dropout", seed=seed) for seed in (0, 1)]
    outputs = extract_batch(classifier, x, views)
    first, second = (outputs.views[view] for view in views)
    dropped = (first == 0).all(0)
    assert 0 < dropped.sum() < 12
    torch.testing.assert_close(first[:, ~dropped], 2 * outputs.features[:, ~dropped])
    assert not torch.equal(dropped, (second == 0).all(0))
    alone = extract_batch(classifier, x[2:3], views).views[views[0]]
    torch.testing.assert_close(alone, first[2:3], rtol=1e-4, atol=1e-6)
    assert "no dropout module" in Classifier(made(mlp)).locate(x).cannot(View(network="dropout"))


@pytest.mark.parametrize("network", ["rank_one", "dropout"])
def test_every_piece_of_a_batch_is_changed_alike(
    network: Literal["rank_one", "dropout"], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, view = images(), View(network=network)
    whole = extract_batch(Classifier(made()), x, [view]).views[view]
    monkeypatch.setattr("adascale.network.classifier.at_once", lambda *_: 1)
    found = extract_batch(Classifier(made()), x, [view]).views[view]
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-6)
