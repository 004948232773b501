"""The CIFAR networks of the experiments, written from their papers: WRN-28-10, DenseNet-BC-100-12, ResNet-18.

All take 32 x 32 RGB images, end in an average pool and a linear layer ``head``, and have the parameter counts of their
papers. Each scales with one number, ``channels``, which can be read off its weights.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.images.preprocess import Preprocess

CIFAR = Preprocess(size=32, crop=32, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))


class CifarNet(nn.Module, ABC):
    """The part that the three networks share: stem, body, norm and ReLU, average pool, linear head.

    full_width: the ``channels`` of the paper. read_off: a weight, its dimension, and what to divide that by to get
    ``channels``.
    """

    full_width: ClassVar[int]
    read_off: ClassVar[tuple[str, int, int]]
    stem: nn.Conv2d
    body: nn.Sequential
    norm: nn.Module
    head: nn.Linear

    def __init__(self, classes: int = 10, channels: int | None = None) -> None:
        super().__init__()
        if classes < 1:
            raise InputError(f"classes={classes}; a network needs at least one.")
        self._build(classes, self.full_width if channels is None else channels)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # He et al., 2015
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.head.bias)

    @abstractmethod
    def _build(self, classes: int, channels: int) -> None:
        """Make the layers."""

    @classmethod
    def like(cls, state: Mapping[str, Tensor]) -> CifarNet:
        """An untrained network of the weights' size and number of classes."""
        name, dimension, factor = cls.read_off
        return cls(len(state["head.weight"]), state[name].shape[dimension] // factor)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.body(self.stem(x))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class WideBlock(nn.Module):
    """Norm, ReLU, 3x3, norm, ReLU, 3x3; where the shape changes, the shortcut is a 1x1 of the activated input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), _conv3(inputs, outputs, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(outputs), _conv3(outputs, outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        kept: Tensor = x if self.shortcut is None else self.shortcut(active)
        new: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return kept + new


class WideResNet28(CifarNet):
    """WRN-28-10 (Zagoruyko and Komodakis, 2016): 36.5 M parameters, 640 features. ``channels`` is 16 times the
    widening factor, so 160; the stem has 16 at any width, as in the paper.
    """

    full_width, read_off = 160, ("head.weight", 1, 4)

    def _build(self, classes: int, channels: int) -> None:
        self.stem = _conv3(3, 16)
        widths = (16, channels, 2 * channels, 4 * channels)
        blocks = []
        for stage, (inputs, outputs) in enumerate(pairwise(widths)):
            blocks.append(WideBlock(inputs, outputs, 2 if stage else 1))
            blocks += [WideBlock(outputs, outputs, 1) for _ in range(3)]
        self.body = nn.Sequential(*blocks)
        self.norm, self.head = nn.BatchNorm2d(widths[-1]), nn.Linear(widths[-1], classes)


class DenseLayer(nn.Module):
    """Norm, ReLU, 1x1 to four times the growth, norm, ReLU, 3x3; the result joins the input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), _conv3(4 * growth, growth)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))
        return torch.cat((x, new), 1)


class Transition(nn.Module):
    """Norm, ReLU, 1x1 to half the channels, 2x2 average."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, inputs // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.norm(x))), 2)


class DenseNetBC100(CifarNet):
    """DenseNet-BC, L = 100, k = 12 (Huang et al., 2017), which OOD papers call DenseNet-101: 0.8 M parameters, 342
    features. ``channels`` is the growth rate k.
    """

    full_width, read_off = 12, ("stem.weight", 0, 2)

    def _build(self, classes: int, channels: int) -> None:
        width = 2 * channels
        self.stem = _conv3(3, width)
        parts: list[nn.Module] = []
        for block in range(3):
            if block:
                parts.append(Transition(width))
                width //= 2
            parts += [DenseLayer(width + i * channels, channels) for i in range(16)]
            width += 16 * channels
        self.body = nn.Sequential(*parts)
        self.norm, self.head = nn.BatchNorm2d(width), nn.Linear(width, classes)


class BasicBlock(nn.Module):
    """3x3, norm, ReLU, 3x3, norm, sum, ReLU; where the shape changes, the shortcut is a 1x1 with a norm."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = _conv3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        new = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(new + self.shortcut(x))


class ResNet18(CifarNet):
    """ResNet-18 (He et al., 2016) with a 3x3 stem and no pooling before the blocks, as is usual for 32 pixels: 11.2 M
    parameters, 512 features. ``channels`` are those of the stem, 64.
    """

    full_width, read_off = 64, ("head.weight", 1, 8)

    def _build(self, classes: int, channels: int) -> None:
        self.stem, self.norm = _conv3(3, channels), nn.BatchNorm2d(channels)
        widths = (channels, channels, 2 * channels, 4 * channels, 8 * channels)
        blocks = []
        for stage, (inputs, outputs) in enumerate(pairwise(widths)):
            blocks += [BasicBlock(inputs, outputs, 2 if stage else 1), BasicBlock(outputs, outputs, 1)]
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(F.relu(self.norm(self.stem(x))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


NETWORKS: Mapping[str, type[CifarNet]] = {
    "wrn-28-10": WideResNet28,
    "densenet-100-12": DenseNetBC100,
    "resnet-18": ResNet18,
}


def make(name: str, classes: int = 10, width: float = 1.0) -> CifarNet:
    """The untrained network of this name; ``width`` scales its channels (WRN-28-10 at 0.1 is WRN-28-1)."""
    kind = network_class(name)
    if not 0 < width < float("inf"):
        raise InputError(f"width={width}; it must be above 0 (1 is the width of the paper).")
    return kind(classes, max(1, round(kind.full_width * width)))


def network_class(name: str) -> type[CifarNet]:
    if name not in NETWORKS:
        raise InputError(f"adascale has no network {name!r}; it has {', '.join(NETWORKS)}.")
    return NETWORKS[name]


def made_for(name: str, state: Mapping[str, Tensor]) -> CifarNet:
    """The network of this name, of the size of these weights and with the weights loaded."""
    kind = network_class(name)
    if kind is DenseNetBC100:
        state = from_blocks(state)
    if "head.weight" not in state or "stem.weight" not in state:
        raise InputError(f"These weights are not those of {name}: they hold no stem.weight and head.weight.")
    model = kind.like(state)
    model.load_state_dict(dict(state))
    return model


_KIND = {"bn": "norm", "conv": "conv"}
_DENSENET_NAMES: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"block(\d)\.layer\.(\d+)\.(bn|conv)(\d)", lambda m: f"{_place(m[1], m[2])}.{_KIND[m[3]]}{m[4]}"),
    (r"trans(\d)\.(bn|conv)1", lambda m: f"{_place(m[1], 16)}.{_KIND[m[2]]}"),
    (r"conv1", lambda _: "stem"),
    (r"bn1", lambda _: "norm"),
    (r"fc", lambda _: "head"),
)


def _place(block: str, layer: str | int) -> str:
    """A block takes 17 places in our body: sixteen layers and a transition."""
    return f"body.{17 * (int(block) - 1) + int(layer)}"


def from_blocks(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """DenseNet-BC weights under the widespread names ``conv1, block1.layer.0.bn1, ..., trans1.conv1, bn1, fc``, renamed
    to ours. Other names stay as they are, and so do weights that have our names already.
    """
    return {_renamed(name): tensor for name, tensor in state.items()}


def _renamed(name: str) -> str:
    path, _, leaf = name.rpartition(".")
    for pattern, ours in _DENSENET_NAMES:
        if match := re.fullmatch(pattern, path):
            return f"{ours(match)}.{leaf}"
    return name


def _conv3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
