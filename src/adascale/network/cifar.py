"""The CIFAR networks of the experiments, written from their papers: WRN-28-10, DenseNet-BC-100-12, ResNet-18.

All take 32 x 32 RGB images, end in an average pool and a linear layer ``head``, and have the parameter counts of their
papers. Each scales with one number, ``channels``, which can be read off its weights.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.suggestions import meant
from adascale.images.preprocess import Preprocess
from adascale.network.families import looks_like
from adascale.network.weights import with_state

CIFAR = Preprocess(size=32, crop=32, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))


class CifarNet(nn.Module, ABC):
    """The part that the three networks share: stem, body, norm and ReLU, average pool, linear head.

    full_width: the ``channels`` of the paper. ratio: features per channel. norm_first: norm and ReLU stand before the
    body, not after it.
    """

    full_width: ClassVar[int]
    ratio: ClassVar[float]
    norm_first: ClassVar[bool] = False

    def __init__(self, classes: int = 10, channels: int | None = None) -> None:
        super().__init__()
        if classes < 1:
            raise InputError(f"classes={classes}; a network needs at least one.")
        channels = self.full_width if channels is None else channels
        width, blocks = self._design(channels)
        features = int(self.ratio * channels)
        self.stem = _conv(3, width)
        if self.norm_first:
            self.norm = nn.BatchNorm2d(width)
        self.body = nn.Sequential(*blocks)
        if not self.norm_first:
            self.norm = nn.BatchNorm2d(features)
        self.head = nn.Linear(features, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # He et al., 2015
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.head.bias)

    @abstractmethod
    def _design(self, channels: int) -> tuple[int, Iterator[nn.Module]]:
        """The width of the stem and the blocks of the body."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.body(F.relu(self.norm(x))) if self.norm_first else F.relu(self.norm(self.body(x)))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class WideBlock(nn.Module):
    """Norm, ReLU, 3x3, norm, ReLU, 3x3; where the shape changes, the shortcut is a 1x1 of the activated input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), _conv(inputs, outputs, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(outputs), _conv(outputs, outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = _conv(inputs, outputs, stride, kernel=1) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        kept: Tensor = x if self.shortcut is None else self.shortcut(active)
        new: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return kept + new


class WideResNet28(CifarNet):
    """WRN-28-10 (Zagoruyko and Komodakis, 2016): 36.5 M parameters, 640 features. ``channels`` is 16 times the
    widening factor, so 160; the stem has 16 at any width, as in the paper.
    """

    full_width, ratio = 160, 4.0

    def _design(self, channels: int) -> tuple[int, Iterator[nn.Module]]:
        return 16, _stages(WideBlock, (16, channels, 2 * channels, 4 * channels), 4)


class DenseLayer(nn.Module):
    """Norm, ReLU, 1x1 to four times the growth, norm, ReLU, 3x3; the result joins the input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), _conv(inputs, 4 * growth, kernel=1)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), _conv(4 * growth, growth)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))
        return torch.cat((x, new), 1)


class Transition(nn.Module):
    """Norm, ReLU, 1x1 to half the channels, 2x2 average."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), _conv(inputs, inputs // 2, kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.norm(x))), 2)


class DenseNetBC100(CifarNet):
    """DenseNet-BC, L = 100, k = 12 (Huang et al., 2017), which OOD papers call DenseNet-101: 0.8 M parameters, 342
    features. ``channels`` is the growth rate k.
    """

    full_width, ratio = 12, 28.5

    def _design(self, channels: int) -> tuple[int, Iterator[nn.Module]]:
        return 2 * channels, self._blocks(channels)

    def _blocks(self, growth: int) -> Iterator[nn.Module]:
        width = 2 * growth
        for block in range(3):
            if block:
                yield Transition(width)
                width //= 2
            for _ in range(16):
                yield DenseLayer(width, growth)
                width += growth


class BasicBlock(nn.Module):
    """3x3, norm, ReLU, 3x3, norm, sum, ReLU; where the shape changes, the shortcut is a 1x1 with a norm."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = _conv(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(_conv(inputs, outputs, stride, kernel=1), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        new = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(new + self.shortcut(x))


class ResNet18(CifarNet):
    """ResNet-18 (He et al., 2016) with a 3x3 stem and no pooling before the blocks, as is usual for 32 pixels: 11.2 M
    parameters, 512 features. ``channels`` are those of the stem, 64.
    """

    full_width, ratio, norm_first = 64, 8.0, True

    def _design(self, channels: int) -> tuple[int, Iterator[nn.Module]]:
        return channels, _stages(BasicBlock, (channels, channels, 2 * channels, 4 * channels, 8 * channels), 2)


def _stages(block: type[WideBlock | BasicBlock], widths: Sequence[int], depth: int) -> Iterator[nn.Module]:
    """``depth`` blocks from each width to the next; every stage but the first halves the side of its images."""
    for stage, (inputs, outputs) in enumerate(pairwise(widths)):
        yield block(inputs, outputs, 2 if stage else 1)
        for _ in range(depth - 1):
            yield block(outputs, outputs, 1)


def _conv(inputs: int, outputs: int, stride: int = 1, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


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
        raise InputError(f"adascale has no network {name!r}{meant(name, NETWORKS)} It has {', '.join(NETWORKS)}.")
    return NETWORKS[name]


def made_for(name: str, state: Mapping[str, Tensor]) -> CifarNet:
    """The network of this name, of the size of these weights and with the weights loaded."""
    kind = network_class(name)
    if kind is DenseNetBC100:
        state = from_blocks(state)
    if "head.weight" not in state or "stem.weight" not in state:
        family = looks_like({key: tuple(tensor.shape) for key, tensor in state.items()})
        rest = f"; {family}." if family else "."
        raise InputError(f"These weights are not those of {name}: they hold no stem.weight and head.weight{rest}")
    classes, features = state["head.weight"].shape
    model = kind(classes, round(features / kind.ratio))
    with_state(model, state, f"adascale:{name}")
    return model


def from_blocks(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """DenseNet-BC weights under the widespread names ``conv1, block1.layer.0.bn1, ..., trans1.conv1, bn1, fc``, renamed
    to ours. Other names stay as they are, and so do weights that have our names already.
    """
    return {_renamed(name): tensor for name, tensor in state.items()}


def _renamed(name: str) -> str:
    path, _, leaf = name.rpartition(".")
    if ours := {"conv1": "stem", "bn1": "norm", "fc": "head"}.get(path):
        return f"{ours}.{leaf}"
    match = re.fullmatch(r"(?:block(\d)\.layer\.(\d+)|trans(\d))\.(bn|conv)(\d)", path)
    if match is None:
        return name
    block, layer, transition, kind, number = match.groups()
    place = 17 * (int(block or transition) - 1) + int(layer or 16)  # sixteen layers and a transition
    return f"body.{place}.{kind.replace('bn', 'norm')}{number if block else ''}.{leaf}"
