"""Methods that look inside the network against NumPy transcriptions of their papers, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from adascale import Head, InputError, Outputs, Tap, View, detectors
from adascale.maths.layers import reduced
from adascale.maths.power import fit_yeo_johnson, yeo_johnson
from adascale.testing import example_outputs

Array = np.ndarray[Any, np.dtype[np.float64]]


def both(name: str, **parameters: object) -> tuple[Outputs, Outputs, Head, Array]:
    """Training samples, others (half of them OOD), the head, and our scores of the others."""
    method = detectors.get(name)(**parameters)
    train, head = example_outputs(300, method.wants)
    parts = [example_outputs(20, method.wants, ood=ood, seed=4)[0] for ood in (False, True)]
    test = Outputs.cat(parts)
    return train, test, head, method.fit(train, head).score(test).numpy()


def layers_of(outputs: Outputs, tap: Tap) -> list[Array]:
    return [layer.double().numpy() for layer in outputs.taps[tap]]


def test_gram() -> None:
    """The bounds of each predicted class, the deviations from them, each layer divided by its mean elsewhere."""
    powers = (1, 2, 5)
    train, test, head, ours = both("gram", powers=powers, held_out=0.0)
    tap = Tap("stages", "gram", powers)
    classes, predicted = train.logits.argmax(1).numpy(), test.logits.argmax(1).numpy()
    total = np.zeros(len(test))
    for known, seen in zip(layers_of(train, tap), layers_of(test, tap), strict=True):
        for i, c in enumerate(predicted):
            low, high = known[classes == c].min(0), known[classes == c].max(0)
            below = np.maximum(low - seen[i], 0) / np.abs(low + 1e-6)
            total[i] += (below + np.maximum(seen[i] - high, 0) / np.abs(high + 1e-6)).sum()
    np.testing.assert_allclose(ours, total, rtol=1e-9)
    held = detectors.Gram(powers=powers, held_out=0.5).fit(train, head)
    assert (held.expected_ != 1).all()  # each layer is divided by what unseen samples deviate


def test_the_row_sums_of_gram_matrices() -> None:
    """The matrices themselves, signed maps of large values among them, give the same."""
    maps = 50 * torch.randn(3, 6, 4, 5, generator=torch.Generator().manual_seed(0))
    found = reduced(maps, Tap("stages", "gram", (1, 3, 10))).double().numpy().reshape(3, 3, 6)
    for image, rows in zip(maps.double().numpy(), found, strict=True):
        for power, row in zip((1, 3, 10), rows, strict=True):
            x = image.reshape(6, -1) ** power
            sums = (x @ x.T).sum(1)
            expected = np.sign(sums) * np.abs(sums) ** (1 / power)
            np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_mds_ensemble() -> None:
    train, test, _, ours = both("mds_ensemble", weights=(1.0, 0.5))
    assert train.labels is not None
    labels, total = train.labels.numpy(), np.zeros(len(test))
    for weight, known, seen in zip((1.0, 0.5), layers_of(train, Tap()), layers_of(test, Tap()), strict=True):
        means = np.stack([known[labels == c].mean(0) for c in range(10)])
        centred = known - means[labels]
        inverse = np.linalg.inv(centred.T @ centred / len(known))
        distances = [np.einsum("ij,jk,ik->i", seen - mean, inverse, seen - mean) for mean in means]
        total += weight * np.min(distances, axis=0)
    np.testing.assert_allclose(ours, total, rtol=1e-6)
    with pytest.raises(InputError, match="3 weights for 2 layers"):
        detectors.MDSEnsemble(weights=(1, 2, 3)).fit(train, example_outputs(2, ())[1])


def test_combood() -> None:
    train, test, _, ours = both("combood", k=3)
    tap = Tap("activations", "minmax")

    def extremes(outputs: Outputs) -> Array:
        logits = outputs.logits.double().numpy()
        return np.concatenate([np.stack([-logits.min(1), logits.max(1)], 1), *layers_of(outputs, tap)], 1)

    known, seen = extremes(train), extremes(test)
    mean, deviation = known.mean(0), known.std(0)
    known, seen = (known - mean) / deviation, (seen - mean) / deviation
    powers = fit_yeo_johnson(torch.from_numpy(known)).numpy()
    known, seen = (np.stack([_yeo(x, p) for x, p in zip(part.T, powers, strict=True)], 1) for part in (known, seen))
    mean, deviation = known.mean(0), known.std(0)
    known, seen = (known - mean) / deviation, (seen - mean) / deviation
    inverse = np.linalg.inv(np.cov(known, rowvar=False) + np.identity(known.shape[1]))
    unit = [part.features.double().numpy() for part in (train, test)]
    unit = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in unit]
    squares = np.sort(((unit[1][:, None] - unit[0][None]) ** 2).sum(2), axis=1)[:, 2]
    expected = np.einsum("ij,jk,ik->i", seen, inverse, seen) + np.sqrt(train.features.shape[1]) * np.log(squares)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def _yeo(x: Array, p: float) -> Array:
    high, low = ((np.maximum(x, 0) + 1) ** p - 1) / p, ((np.maximum(-x, 0) + 1) ** (2 - p) - 1) / (2 - p)
    return np.asarray(np.where(x >= 0, high, -low))


def test_the_power_transform_finds_the_power() -> None:
    """Samples that a known power makes normal; and the limits at 0 and 2."""
    normal = torch.randn(4000, 1, generator=torch.Generator().manual_seed(0)).double()
    skewed = torch.expm1(normal.clamp_min(-3))  # log(1 + x) is normal above 0: a power near 0
    assert fit_yeo_johnson(normal).item() == pytest.approx(1, abs=0.05)
    assert fit_yeo_johnson(skewed.clamp_min(0) + 0.5).item() < 0.3
    x = torch.tensor([[-2.0], [3.0]]).double()
    assert torch.allclose(yeo_johnson(x, torch.tensor([0.0]).double())[1], torch.log1p(x[1]))
    assert torch.allclose(yeo_johnson(x, torch.tensor([2.0]).double())[0], -torch.log1p(-x[0]))


def test_nac() -> None:
    train, test, _, ours = both("nac", bins=20, enough=7, steepness=500.0)
    low = np.log(np.linspace(1, np.sqrt(1e3), 10)) / np.log(1e3)
    edges = np.append(np.concatenate([low[:-1], (1 - low)[::-1]]), 1.2)
    edges[-2] += 1e-2
    tap, total = Tap("stages", "attribution"), np.zeros(len(test))
    for known, seen in zip(layers_of(train, tap), layers_of(test, tap), strict=True):
        known, seen = (1 / (1 + np.exp(-np.clip(500 * part, -700, 700))) for part in (known, seen))
        inside = (known[:, None] >= edges[:-1, None]) & (known[:, None] < edges[1:, None])
        covered = np.minimum(inside.sum(0) / 7, 1)
        here = (seen[:, None] >= edges[:-1, None]) & (seen[:, None] < edges[1:, None])
        total -= (here * covered).sum(1).mean(1) / 2
    np.testing.assert_allclose(ours, total, rtol=1e-9)


def test_gaia() -> None:
    """The means over all channels of all layers; GAIA-A against the slope at the logits."""
    for name, reduce in (("gaia_z", "gradient_share"), ("gaia_a", "gradient_mean")):
        _, test, head, ours = both(name)
        layers = layers_of(test, Tap("norms", reduce))  # type: ignore[arg-type]
        expected = sum(layer[:, 0] for layer in layers) / sum(layer[:, 1] for layer in layers)
        if name == "gaia_a":
            z = test.logits.double().numpy()
            p = np.exp(z - z.max(1, keepdims=True))
            slope = (1 - z.shape[1] * p / p.sum(1, keepdims=True)) @ head.weight.double().numpy()
            expected = np.log(expected / np.abs(slope).mean(1))
        np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_rankfeat_and_mc_dropout() -> None:
    """The energy of the mean logits; the variance of the probabilities, or minus the largest mean one."""
    _, test, head, ours = both("rankfeat")
    logits = [head(test.views[View(network="rank_one", stage=stage)]).numpy() for stage in (-1, -2)]
    np.testing.assert_allclose(ours, -np.log(np.exp((logits[0] + logits[1]) / 2).sum(1)), rtol=1e-9)
    for mode in ("var", "mean", "logits"):
        _, test, head, ours = both("mc_dropout", samples=4, mode=mode)
        z = np.stack([head(found).numpy() for found in test.views.values()])
        p, q = (np.exp(part) / np.exp(part).sum(-1, keepdims=True) for part in (z, z.mean(0)))
        expected = {"var": p.var(0, ddof=1).mean(1), "mean": -p.mean(0).max(1), "logits": -q.max(1)}[mode]
        np.testing.assert_allclose(ours, expected, 1e-6, 1e-15)


def test_a_missing_tap_is_named() -> None:
    outputs, head = example_outputs(30, ())
    with pytest.raises(InputError, match=r"gram needs the inner layers tap/stages/gram/p=1.*these outputs have none"):
        detectors.Gram(powers=(1,)).fit(outputs, head)


def test_the_exporter_is_told_why_and_what_to_take() -> None:
    assert "reads inner layers" in detectors.Gram().untraceable
    assert "use mds" in detectors.Gram().untraceable
    assert "changed network" in detectors.RankFeat().untraceable
    assert detectors.MDS().untraceable == ""
