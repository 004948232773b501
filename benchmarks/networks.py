"""Small CIFAR-10 classifiers of several kinds, trained for `benchmarks.generalise` (docs/generalise.md has the recipe).

They are chosen to differ where post-hoc methods are sensitive: in the number of features (32 to 256), in their sign
(ReLU; SiLU; LayerNorm) and in the kind of convolution (plain, depthwise).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PREPROCESS = {"size": 32, "crop": 32, "mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)}
CLASSES = 10

Activation = Callable[[Tensor], Tensor]


class Residual(nn.Module):
    """``act(shortcut(x) + conv(act(conv(x))))`` with batch norms (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int, act: Activation) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        return self.act(self.shortcut(x) + y)


class ResNet(nn.Module):
    """Three stages of ``blocks`` residual blocks with width, 2 width and 4 width channels; features are pooled."""

    def __init__(self, width: int, blocks: int, stem_stride: int, act: Activation = F.relu) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stem_stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        body, inputs = [], width
        for stage in range(3):
            for block in range(blocks):
                body.append(Residual(inputs, width << stage, 2 if stage and not block else 1, act))
                inputs = width << stage
        self.body, self.act = nn.Sequential(*body), act
        self.head = nn.Linear(inputs, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.act(self.norm(self.stem(x))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class ConvNeXtBlock(nn.Module):
    """``x + W2 gelu(W1 norm(depthwise(x)))`` (Liu et al., 2022), channels last."""

    def __init__(self, width: int, kernel: int = 5) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        mixed: Tensor = x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)
        return mixed


class ConvNeXt(nn.Module):
    """Patches of 2 pixels, three stages, a LayerNorm after pooling: features of both signs."""

    def __init__(self, width: int = 32, blocks: Sequence[int] = (1, 2, 1)) -> None:
        super().__init__()
        body: list[nn.Module] = [nn.Conv2d(3, width, 2, 2)]
        for stage, count in enumerate(blocks):
            body.append(nn.GroupNorm(1, width << stage))
            body += [ConvNeXtBlock(width << stage) for _ in range(count)]
            if stage + 1 < len(blocks):
                body.append(nn.Conv2d(width << stage, 2 * width << stage, 2, 2))
        self.body, features = nn.Sequential(*body), width << (len(blocks) - 1)
        self.norm, self.head = nn.LayerNorm(features), nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.body(x).mean((2, 3))))
        return logits


def narrow_resnet() -> nn.Module:
    """32 features."""
    return _fast(ResNet(width=8, blocks=1, stem_stride=1))


def wide_resnet() -> nn.Module:
    """256 features; a quarter of the resolution, to save time."""
    return _fast(ResNet(width=64, blocks=1, stem_stride=4))


def silu_resnet() -> nn.Module:
    """96 features after a SiLU, slightly negative at times."""
    return _fast(ResNet(width=24, blocks=2, stem_stride=2, act=F.silu))


def convnext() -> nn.Module:
    """128 features of both signs."""
    return _fast(ConvNeXt())


def _fast(network: nn.Module) -> nn.Module:
    """Convolutions with this memory layout are up to a third faster on a CPU."""
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
