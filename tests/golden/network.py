"""The golden case that starts from images: ``a = ReLU(V x + v)``, ``z = W a + b``, gradients by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.golden.cases import rounded
from tests.reference import images
from tests.reference.common import Array, Head, Samples, scores
from tests.reference.distances import gaussians
from tests.reference.methods import METHODS

IMAGE = (3, 6, 6)


class Network(NamedTuple):
    V: Array
    v: Array
    head: Head
    x_val: Array
    x_test: Array


def network() -> Network:
    random = np.random.RandomState(9)
    V, v = rounded(random.normal(size=(24, 108)) / 8), rounded(random.normal(size=24) / 4)
    V[1:, 50] = 0  # one value feeds one unit alone: its gradient is exactly zero where that unit is off
    head = Head(rounded(random.normal(size=(5, 24)) / 2), rounded(random.normal(size=5)))
    x_val, x_test = (rounded(random.normal(size=(n, *IMAGE))) for n in (24, 16))
    return Network(V, v, head, x_val, x_test)


def settings() -> list[tuple[str, dict[str, Any]]]:
    looks: list[dict[str, Any]] = [
        {},
        {"pixels": "salient", "fraction": 0.1, "epsilon": 0.25},
        {"pixels": "all", "epsilon": 0.1},
    ]
    return [
        *(("adascale_a", look) for look in looks),
        *(("adascale_l", look) for look in looks),
        *(("activation_shift", look) for look in looks),
        ("combined", {"pixels": "trivial"}),
        ("odin", {}),
        ("odin", {"temperature": 1, "eta": 0.05, "std": [0.25, 0.2, 0.3]}),
        ("mds_odin", {}),
        ("mds_odin", {"eta": 0.05, "std": [0.25, 0.2, 0.3]}),
        ("iodin", {"temperature": 1, "eta": 0.5, "std": [0.25, 0.2, 0.3]}),
    ]


def views(net: Network, method: str, parameters: dict[str, Any], x: Array) -> Array:
    """The perturbed copies of the images."""
    features, pull = images.dense(net.V, net.v)
    if method in ("odin", "iodin"):
        given = {**parameters, "one": method == "iodin"}
        return np.array([images.odin_input(each, features, pull, net.head, **given) for each in x])
    if method == "mds_odin":
        means, L = gaussians(clean(net, net.x_val))
        return np.array([images.mahalanobis_input(each, features, pull, means, L, **parameters) for each in x])
    gradients = [images.logit_gradient(one, features, pull, net.head) for one in x]
    return np.array([images.perturbed(one, g, **parameters) for one, g in zip(x, gradients, strict=True)])


def clean(net: Network, x: Array) -> Samples:
    """The images as they are; the label of each is the class that the network predicts."""
    a = np.array([images.dense(net.V, net.v)[0](one) for one in x])
    z = np.array([net.head(row) for row in a])
    return Samples(a, z, a, z.argmax(1))


def score(net: Network, method: str, parameters: dict[str, Any]) -> Array:
    """The scores of the test images."""
    features, _ = images.dense(net.V, net.v)

    def run(x: Array) -> Samples:
        return clean(net, x)._replace(a_eps=np.array([features(one) for one in views(net, method, parameters, x)]))

    rest = {name: value for name, value in parameters.items() if name == "temperature"}
    return scores(METHODS[method], *net.head, run(net.x_val), run(net.x_test), **rest)
