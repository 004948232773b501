"""Fitted detectors of a small network, and images whose scores differ clearly."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any, cast

import torch
from torch import Tensor, nn

from adascale import OODDetector, detectors
from tests.conftest import SmallNet, images, seeded

BRIGHT = torch.linspace(0.5, 2, 150)[:, None, None, None]


def varied(n: int, seed: int) -> Tensor:
    """Images that differ in contrast, so that features and scores differ clearly."""
    return images(n, seed=seed) * BRIGHT[torch.arange(n) % 150]


def evened(net: nn.Module) -> nn.Module:
    """The network with a bias that makes it choose every class for some of the images: SHE needs them."""
    head = cast(nn.Linear, net.get_submodule("fc"))
    with torch.no_grad():
        head.weight *= 20
        head.bias.sub_(net(varied(150, 2)).mean(0))
    return net


def fitted(method: str = "combined", model: nn.Module | None = None, **options: Any) -> OODDetector:
    known = {one.name for one in fields(detectors.get(method))}
    small = {key: value for key, value in {"k": 5, "dim": 20}.items() if key in known}
    if "pixels" in known:
        small["pixels"] = "random"  # type: ignore[assignment]
    net = evened(seeded(SmallNet)) if model is None else model
    known_images, train = (labelled(net, varied(150, seed)) for seed in (1, 2))
    given = known_images if method == "temp_scale" else known_images[0]
    return OODDetector(net, method, **{**small, **options}).fit(given, train, tune=False)


def labelled(net: nn.Module, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The images with the network's own answers as labels."""
    return given, torch.as_tensor(copy.deepcopy(net).eval()(given).argmax(1))
