"""Outliers made from in-distribution images, to tune on where there is no OOD data.

Each kind keeps most of what an image shares with the training data (colours, textures, objects, layout) and breaks one
thing: the arrangement, the single subject, the subject itself, the detail, or its scale. All of them work on batches of
inputs (N, C, H, W).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from adascale.maths.split import draw


class Tamper(Protocol):
    """A change of a batch of inputs before the network sees it. Its ``repr`` must show all that shapes the result."""

    def __call__(self, images: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Shuffled:
    """Each image cut into ``grid`` x ``grid`` patches, in a random order of its own."""

    grid: int = 4
    seed: int = 0

    def __call__(self, images: Tensor) -> Tensor:
        n, channels, height, width = images.shape
        # A side that cannot be divided is stretched to the next length that can, and the result is shrunk again.
        size = tuple(-(-side // self.grid) * self.grid for side in (height, width))
        stretched = images if size == (height, width) else _resized(images, size)
        tall, wide = (side // self.grid for side in size)
        patches = stretched.reshape(n, channels, self.grid, tall, self.grid, wide).permute(0, 2, 4, 1, 3, 5)
        patches = patches.reshape(n, self.grid**2, channels, tall, wide)
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.stack([torch.randperm(self.grid**2, generator=generator) for _ in range(n)])
        patches = patches[torch.arange(n)[:, None], order]
        patches = patches.reshape(n, self.grid, self.grid, channels, tall, wide).permute(0, 3, 1, 4, 2, 5)
        shuffled = patches.reshape(n, channels, *size)
        return shuffled if size == (height, width) else _resized(shuffled, (height, width))


@dataclass(frozen=True)
class Mixed:
    """The mean of each image and its neighbour in the batch, or its mirror image if it is alone."""

    def __call__(self, images: Tensor) -> Tensor:
        return (images + (images.roll(1, 0) if len(images) > 1 else images.flip(-1))) / 2


@dataclass(frozen=True)
class Blurred:
    """A box blur as wide as ``share`` of the shorter side; edges are repeated."""

    share: float = 0.2

    def __call__(self, images: Tensor) -> Tensor:
        reach = max(1, round(min(images.shape[-2:]) * self.share / 2))
        padded = F.pad(images.float(), (reach,) * 4, mode="replicate")
        return F.avg_pool2d(padded, 2 * reach + 1, stride=1).to(images.dtype)


@dataclass(frozen=True)
class Masked:
    """The inner half of each side covered by what is above and below it, mirrored: an image without its subject."""

    def __call__(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        top, left, rows = height // 4, width // 4, torch.arange(height, device=images.device)
        mirrored = torch.where(rows < height / 2, 2 * top - 1 - rows, 2 * (height - top) - 1 - rows)
        covered = (rows >= top) & (rows < height - top)
        source = torch.where(covered, mirrored.clamp(0, height - 1), rows)
        masked, inner = images.clone(), slice(left, width - left)
        masked[..., inner] = images[..., source, :][..., inner]
        return masked


@dataclass(frozen=True)
class Zoomed:
    """The inner ``share`` of each side, enlarged to the whole image."""

    share: float = 0.5

    def __call__(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        tall, wide = (max(1, round(side * self.share)) for side in (height, width))
        top, left = (height - tall) // 2, (width - wide) // 2
        inner = images[..., top : top + tall, left : left + wide]
        return _resized(inner, (height, width), "bicubic")


OUTLIERS: Mapping[str, Tamper] = {
    "shuffled": Shuffled(),
    "mixed": Mixed(),
    "masked": Masked(),
    "blurred": Blurred(),
    "zoomed": Zoomed(),
}


def _resized(images: Tensor, size: tuple[int, ...], mode: str = "bilinear") -> Tensor:
    return F.interpolate(images.float(), size=size, mode=mode, align_corners=False).to(images.dtype)


class Sample:
    """At most ``size`` images of a stream: those with the smallest numbers of `draw`, which `split` would choose."""

    def __init__(self, seed: int, size: int) -> None:
        self.size, self._numbers, self._index = size, draw(seed), 0
        self._kept: list[tuple[float, int, Tensor]] = []  # a heap: the largest number goes first

    def add(self, images: Tensor) -> None:
        for image in images:
            number = -next(self._numbers)
            if len(self._kept) < self.size:
                heapq.heappush(self._kept, (number, self._index, image.clone()))
            elif number > self._kept[0][0]:
                heapq.heapreplace(self._kept, (number, self._index, image.clone()))
            self._index += 1

    def stacked(self, indices: Sequence[int]) -> Tensor | None:
        """The images at these places of the stream; None if they differ in size."""
        kept = {index: image for _, index, image in self._kept}
        images = [kept[index] for index in indices]
        return torch.stack(images) if len({image.shape for image in images}) == 1 else None
