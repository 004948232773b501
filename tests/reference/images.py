"""Perturbed inputs, from gradients written out by hand: for a two-layer and for a small convolutional network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.reference.common import Array, Head, softmax

Features = Callable[[Array], Array]  # one image (C, H, W) to its activations
Pull = Callable[[Array, Array], Array]  # (image, gradient at its activations) to the gradient at the image


def dense(V: Array, v: Array) -> tuple[Features, Pull]:
    """``a = ReLU(V x + v)`` with the image's values in one row."""

    def features(x: Array) -> Array:
        a: Array = np.maximum(V @ x.ravel() + v, 0)
        return a

    def pull(x: Array, at_features: Array) -> Array:
        pulled: Array = V.T @ np.where(V @ x.ravel() + v > 0, at_features, 0)
        return pulled.reshape(x.shape)

    return features, pull


def convolutional(layers: Sequence[tuple[Array, Array]]) -> tuple[Features, Pull]:
    """3x3 convolutions (stride 2, padding 1), each with a ReLU, then the mean over height and width."""

    def forward(x: Array) -> list[Array]:
        before = []
        for weight, bias in layers:
            x = _convolved(x, weight) + bias[:, None, None]
            before.append(x)
            x = np.maximum(x, 0)
        return before

    def features(x: Array) -> Array:
        a: Array = np.maximum(forward(x)[-1], 0).mean((1, 2))
        return a

    def pull(x: Array, at_features: Array) -> Array:
        before = forward(x)
        size = before[-1].shape[1] * before[-1].shape[2]
        gradient = np.broadcast_to((at_features / size)[:, None, None], before[-1].shape)
        shapes = [x.shape, *(each.shape for each in before[:-1])]
        for (weight, _), z, shape in zip(reversed(layers), reversed(before), reversed(shapes), strict=True):
            gradient = _pulled_back(np.where(z > 0, gradient, 0), weight, shape)
        return gradient

    return features, pull


def _convolved(x: Array, weight: Array) -> Array:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    high, wide = x.shape[1] // 2, x.shape[2] // 2
    out: Array = np.zeros((len(weight), high, wide))
    for u in range(3):
        for v in range(3):
            part = padded[:, u : u + 2 * high : 2, v : v + 2 * wide : 2]
            out += np.einsum("oc,chw->ohw", weight[:, :, u, v], part)
    return out


def _pulled_back(gradient: Array, weight: Array, shape: tuple[int, ...]) -> Array:
    padded: Array = np.zeros((shape[0], shape[1] + 2, shape[2] + 2))
    high, wide = shape[1] // 2, shape[2] // 2
    for u in range(3):
        for v in range(3):
            part = np.einsum("oc,ohw->chw", weight[:, :, u, v], gradient)
            padded[:, u : u + 2 * high : 2, v : v + 2 * wide : 2] += part
    return padded[:, 1:-1, 1:-1]


def logit_gradient(x: Array, features: Features, pull: Pull, head: Head) -> Array:
    """``d z[y_pred] / d x``."""
    return pull(x, head.W[head(features(x)).argmax()])


def perturbed(x: Array, g: Array, pixels: str = "trivial", fraction: float = 0.05, epsilon: float = 0.5) -> Array:
    """``x + eps sign(g)`` on the chosen share of the values; ``sign(0) = 0``."""
    order = sorted(range(g.size), key=lambda i: abs(g.ravel()[i]))
    count = math.floor(g.size * fraction)
    chosen = {"trivial": order[:count], "salient": order[-count:], "all": order}[pixels]
    moved: Array = x.ravel().copy()
    for i in chosen:
        moved[i] += epsilon * np.sign(g.ravel()[i])
    return moved.reshape(x.shape)


def odin_input(
    x: Array,
    features: Features,
    pull: Pull,
    head: Head,
    temperature: float = 1000,
    eta: float = 0.0014,
    std: Sequence[float] = (),
    one: bool = False,
) -> Array:
    """``x - eta sign(d CE(z / T, y_pred) / d x) / std`` with ``sign(0) = 1``; ``one``: only at the largest ``|g|``."""
    z = head(features(x))
    at_logits = softmax(z / temperature)
    at_logits[z.argmax()] -= 1
    g = pull(x, head.W.T @ at_logits / temperature)
    step = np.where(g >= 0, 1.0, -1.0) / (np.array(std)[:, None, None] if std else 1.0)
    if one:
        step = np.where(np.arange(g.size).reshape(g.shape) == np.abs(g).argmax(), step, 0)
    moved: Array = x - eta * step
    return moved


def mahalanobis_input(
    x: Array,
    features: Features,
    pull: Pull,
    means: Sequence[Array],
    L: Array,
    eta: float = 0.002,
    std: Sequence[float] = (),
) -> Array:
    """``x - eta sign(d M / d x) / std`` with ``sign(0) = 0``, ``M = (a - mu_c)^T L L^T (a - mu_c) / 2`` to the nearest
    of the means.
    """
    from_each = [L @ (L.T @ (features(x) - mean)) for mean in means]
    distances = [float(away @ (features(x) - mean)) for away, mean in zip(from_each, means, strict=True)]
    g = pull(x, from_each[int(np.argmin(distances))])
    moved: Array = x - eta * np.sign(g) / (np.array(std)[:, None, None] if std else 1.0)
    return moved
